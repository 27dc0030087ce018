package main

import (
	"context"
	"time"

	"github.com/rota-queue/rota/core"
)

// riverWorkers is MaxWorkers of the peer, and the concurrency of rota's worker.
const riverWorkers = 1_000

// postgresDrain alternates stock River and the core worker over the same number of
// jobs that were inserted before.
func postgresDrain(ctx context.Context, s settings, r *report) error {
	rounds, n := s.pick(5, 1), s.pick(30_000, 3_000)
	return withPostgres(func(server *postgresServer) error {
		var peer, grouped, plain []float64
		for range rounds {
			took, err := riverRound(ctx, server, n)
			if err != nil {
				return err
			}
			peer = append(peer, perSecond(n, took))
			for groups, series := range map[int]*[]float64{1_000: &grouped, 0: &plain} {
				took, err := server.rotaRound(ctx, n, groups)
				if err != nil {
					return err
				}
				*series = append(*series, perSecond(n, took))
			}
		}
		r.series("River, no groups", "jobs/s", peer...)
		r.series("rota, no groups", "jobs/s", plain...)
		r.series("rota, 1,000 groups", "jobs/s", grouped...)
		r.atLeast("rota without groups / River", 0.8, ratios(plain, peer)...)
		r.atLeast("rota with groups / River", 0.6, ratios(grouped, peer)...)
		return nil
	})
}

func (s *postgresServer) rotaRound(ctx context.Context, n, groups int) (took time.Duration, err error) {
	err = s.withBackend(ctx, postgresConns, func(b core.Backend) error {
		if err := publish(ctx, b, "bench", n, groups, 1_000); err != nil {
			return err
		}
		took, err = drain(ctx, b, "bench", n, riverWorkers)
		return err
	})
	return took, err
}
