package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// postgresSnapshot drains rounds of jobs of 1,000 groups while a transaction that
// was begun before keeps every dead row from being removed.
func postgresSnapshot(ctx context.Context, s settings, r *report) error {
	rounds, n := 10, s.pick(20_000, 1_000)
	return withPostgres(func(server *postgresServer) error {
		return server.withBackend(ctx, postgresConns, func(b core.Backend) error {
			var free, held []float64
			for range 3 {
				rate, err := publishedAndDrained(ctx, b, n)
				if err != nil {
					return err
				}
				free = append(free, rate)
			}
			conn, err := pgx.Connect(ctx, server.url)
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx)
			if _, err := tx.Exec(ctx, "SELECT count(*) FROM pg_class"); err != nil { // takes the snapshot
				return err
			}
			for range rounds {
				rate, err := publishedAndDrained(ctx, b, n)
				if err != nil {
					return err
				}
				held = append(held, rate)
			}
			r.series("drain, no snapshot held", "jobs/s", free...)
			r.series("drain, a snapshot held, by round", "jobs/s", held...)
			r.atLeast("last two rounds / first two", 0.5, (held[rounds-1]+held[rounds-2])/(held[0]+held[1]))
			return nil
		})
	})
}

func publishedAndDrained(ctx context.Context, b core.Backend, n int) (float64, error) {
	if err := publish(ctx, b, "bench", n, 1_000, 1_000); err != nil {
		return 0, err
	}
	took, err := drain(ctx, b, "bench", n, drainConcurrency)
	return perSecond(n, took), err
}
