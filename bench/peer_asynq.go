package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

const asynqKind = "bench"

func asynqOpt(addr string) asynq.RedisClientOpt { return asynq.RedisClientOpt{Addr: addr} }

// asynqPublish enqueues n tasks one by one, as its client offers, from producers
// goroutines, and tells how long it took.
func asynqPublish(ctx context.Context, addr string, n, producers int) (time.Duration, error) {
	client := asynq.NewClient(asynqOpt(addr))
	defer client.Close()
	payload := make([]byte, payloadSize)
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, producers)
	begin := time.Now()
	for range producers {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if _, err := client.EnqueueContext(ctx, asynq.NewTask(asynqKind, payload)); err != nil {
					errs <- fmt.Errorf("asynq enqueue: %w", err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return time.Since(begin), <-errs
}

// asynqDrain runs one stock server until n tasks have been handled, and tells
// how long that took.
func asynqDrain(ctx context.Context, addr string, n, concurrency int) (time.Duration, error) {
	server := asynq.NewServer(asynqOpt(addr), asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel})
	var handled atomic.Int64
	done := make(chan struct{})
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if handled.Add(1) == int64(n) {
			close(done)
		}
		return nil
	})
	begin := time.Now()
	if err := server.Start(handler); err != nil {
		return 0, err
	}
	defer server.Shutdown()
	select {
	case <-done:
		return time.Since(begin), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("asynq drain after %d tasks: %w", handled.Load(), context.Cause(ctx))
	}
}
