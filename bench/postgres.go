package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/backends/postgres"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// postgresServer is the private server of one benchmark. It commits without
// waiting for the disk, for all that is measured on it alike.
type postgresServer struct {
	url, programs string
}

func withPostgres(f func(*postgresServer) error) error {
	server, err := testserver.LaunchPostgres(testserver.Programs("pgbench"), testserver.Args("-c", "max_connections=100", "-c", "shared_buffers=512MB", "-c", "max_wal_size=8GB"))
	if err != nil {
		return err
	}
	defer server.Close()
	return f(&postgresServer{url: server.URL(), programs: server.Programs()})
}

func (s *postgresServer) withPool(ctx context.Context, conns int, f func(*pgxpool.Pool) error) error {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", s.url, conns))
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(pool)
}

// withBackend runs f with an empty schema.
func (s *postgresServer) withBackend(ctx context.Context, conns int, f func(core.Backend) error) error {
	return s.withPool(ctx, conns, func(pool *pgxpool.Pool) error {
		if err := rotapostgres.Migrate(ctx, pool, "", 0); err != nil {
			return err
		}
		b, err := rotapostgres.New(ctx, pool, rotapostgres.Options{})
		if err != nil {
			return err
		}
		defer b.Close()
		return f(b)
	})
}

// exec runs statements on a connection of their own.
func (s *postgresServer) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// postgresConns is how many connections each side of a comparison gets.
const postgresConns = 4

func postgresBenchmarks() []benchmark {
	return []benchmark{
		{"postgres-drain", "core worker beside stock River (cooldown 1 ms, 1,000 workers), same PostgreSQL: ungrouped at least 0.8, 1,000 groups at least 0.6", postgresDrain},
		{"postgres-limit", "publish and drain beside the least statements that could do the work, by pgbench, 4 connections: at least 0.6", postgresLimit},
		{"postgres-claim", "claim and settle at 1,000 and 100,000 due groups: at most 1.3 times; 10,000 blocked groups in front change nothing", postgresClaim},
		{"postgres-graphile", "beside graphile-worker's named queues, tuned (needs npm): 20 jobs per group at least 3 times, with order kept; 1 job per group at least 0.7 times", postgresGraphile},
		{"postgres-snapshot", "a snapshot held open: throughput after 200,000 jobs is at least half of that at the start", postgresSnapshot},
	}
}

func postgresClaim(ctx context.Context, s settings, r *report) error {
	return withPostgres(func(server *postgresServer) error {
		return server.withBackend(ctx, postgresConns, func(b core.Backend) error { return claimCost(ctx, s, r, b) })
	})
}
