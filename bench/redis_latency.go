package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// redisLatency publishes single jobs to an idle worker and times publish to
// start; then it counts the commands an idle worker sends.
func redisLatency(ctx context.Context, s settings, r *report) error {
	n, idle := s.pick(200, 30), time.Duration(s.pick(5, 2))*time.Second
	return withRedis(func(server *redisServer) error {
		return server.withBackend(ctx, func(b core.Backend) error {
			started := make(chan time.Time, 1)
			w, err := worker.New(b, worker.Config{
				Queues:      []worker.Queue{{Name: "bench"}},
				Concurrency: drainConcurrency,
				Handler: worker.HandlerFunc(func(context.Context, *worker.Task) error {
					started <- time.Now()
					return nil
				}),
			})
			if err != nil {
				return err
			}
			if err := w.Start(ctx); err != nil {
				return err
			}
			defer w.Stop(ctx)
			took := make([]time.Duration, n)
			for i := range took {
				time.Sleep(20 * time.Millisecond) // so that the worker is idle again
				begin := time.Now()
				if _, err := core.Publish(ctx, b, core.NewJob{Queue: "bench", Group: fmt.Sprint(i % 10)}); err != nil {
					return err
				}
				took[i] = (<-started).Sub(begin)
			}
			ms := milliseconds(took)
			r.series("publish to start, p99", "ms", percentile(ms, 0.99))
			r.atMost("publish to start, median, ms", 10, ms...)
			rate, err := commandRate(ctx, server.client, idle)
			if err != nil {
				return err
			}
			r.atMost("commands/s of an idle worker", 10, rate)
			return nil
		})
	})
}

// commandRate counts what the server processes in d, without the two INFOs.
func commandRate(ctx context.Context, client *redis.Client, d time.Duration) (float64, error) {
	count := func() (n float64, err error) {
		info, err := client.InfoMap(ctx, "stats").Result()
		if err != nil {
			return 0, err
		}
		_, err = fmt.Sscan(info["Stats"]["total_commands_processed"], &n)
		return n, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	time.Sleep(d)
	after, err := count()
	return (after - before - 1) / d.Seconds(), err
}
