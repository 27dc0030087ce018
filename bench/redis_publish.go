package main

import (
	"context"
	"time"

	"github.com/rota-queue/rota/core"
)

// redisPublish alternates asynq's single enqueues and rota's batches, each from
// one producer, and shows rota's single publishes beside.
func redisPublish(ctx context.Context, s settings, r *report) error {
	rounds, n := s.pick(5, 1), s.pick(50_000, 3_000)
	return withRedis(func(server *redisServer) error {
		var peer, batches, singles []float64
		for range rounds {
			if err := server.flush(ctx); err != nil {
				return err
			}
			took, err := asynqPublish(ctx, server.addr, n, 1)
			if err != nil {
				return err
			}
			peer = append(peer, perSecond(n, took))
			for batch, series := range map[int]*[]float64{100: &batches, 1: &singles} {
				err := server.withBackend(ctx, func(b core.Backend) error {
					begin := time.Now()
					if err := publish(ctx, b, "bench", n, 1_000, batch); err != nil {
						return err
					}
					*series = append(*series, perSecond(n, time.Since(begin)))
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
		r.series("asynq, one by one, one producer", "jobs/s", peer...)
		r.series("rota, batches of 100, 1,000 groups", "jobs/s", batches...)
		r.series("rota, one by one, 1,000 groups", "jobs/s", singles...)
		r.atLeast("rota in batches / asynq", 3, ratios(batches, peer)...)
		return nil
	})
}
