package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

const drainConcurrency = 32

// redisDrain alternates a stock asynq server and the core worker over the same
// number of jobs that were published before.
func redisDrain(ctx context.Context, s settings, r *report) error {
	rounds, n := s.pick(9, 1), s.pick(50_000, 3_000)
	return withRedis(func(server *redisServer) error {
		var peer, grouped, plain []float64
		for range rounds {
			took, err := asynqRound(ctx, server, n)
			if err != nil {
				return err
			}
			peer = append(peer, perSecond(n, took))
			for groups, series := range map[int]*[]float64{1_000: &grouped, 0: &plain} {
				took, err := rotaRound(ctx, server, n, groups)
				if err != nil {
					return err
				}
				*series = append(*series, perSecond(n, took))
			}
		}
		r.series("asynq, no groups", "jobs/s", peer...)
		r.series("rota, 1,000 groups", "jobs/s", grouped...)
		r.series("rota, no groups", "jobs/s", plain...)
		r.atLeast("rota with groups / asynq", 5, ratios(grouped, peer)...)
		r.atLeast("rota without groups / asynq", 5, ratios(plain, peer)...)
		return nil
	})
}

func asynqRound(ctx context.Context, server *redisServer, n int) (time.Duration, error) {
	if err := server.flush(ctx); err != nil {
		return 0, err
	}
	if _, err := asynqPublish(ctx, server.addr, n, 16); err != nil {
		return 0, err
	}
	return asynqDrain(ctx, server.addr, n, drainConcurrency)
}

func rotaRound(ctx context.Context, server *redisServer, n, groups int) (took time.Duration, err error) {
	err = server.withBackend(ctx, func(b core.Backend) error {
		if err := publish(ctx, b, "bench", n, groups, 1_000); err != nil {
			return err
		}
		took, err = drain(ctx, b, "bench", n, drainConcurrency)
		return err
	})
	return took, err
}

// drain runs a worker with empty handlers until n jobs have been handled, and
// checks that nothing is left once it has stopped.
func drain(ctx context.Context, b core.Backend, queue string, n, concurrency int) (time.Duration, error) {
	return drainWith(ctx, b, queue, n, concurrency, func(*worker.Task) error { return nil })
}

// drainWith is drain with a handler; an error of it is the drain's.
func drainWith(ctx context.Context, b core.Backend, queue string, n, concurrency int, handle func(*worker.Task) error) (time.Duration, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var handled atomic.Int64
	done := make(chan struct{})
	w, err := worker.New(b, worker.Config{
		Queues:      []worker.Queue{{Name: queue}},
		Concurrency: concurrency,
		Handler: worker.HandlerFunc(func(_ context.Context, t *worker.Task) error {
			if err := handle(t); err != nil {
				fail(err)
			}
			if handled.Add(1) == int64(n) {
				close(done)
			}
			return nil
		}),
	})
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := w.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return 0, fmt.Errorf("drain after %d jobs: %w", handled.Load(), context.Cause(ctx))
	}
	took := time.Since(begin)
	if err := w.Stop(ctx); err != nil {
		return 0, err
	}
	info, err := b.QueueInfo(ctx, queue)
	if err != nil {
		return 0, err
	}
	for state, left := range info.Jobs {
		if !state.Finished() && left > 0 {
			return 0, fmt.Errorf("%d jobs are still %s after the drain", left, state)
		}
	}
	return took, nil
}
