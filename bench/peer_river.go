package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type riverArgs struct {
	Payload []byte `json:"payload"`
}

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handled atomic.Int64
	n       int64
	done    chan struct{}
}

func (w *riverWorker) Work(context.Context, *river.Job[riverArgs]) error {
	if w.handled.Add(1) == w.n {
		close(w.done)
	}
	return nil
}

// riverRound inserts n jobs and lets a stock client, set up for speed, work them.
func riverRound(ctx context.Context, s *postgresServer, n int) (took time.Duration, err error) {
	err = s.withPool(ctx, postgresConns, func(pool *pgxpool.Pool) error {
		migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
			return err
		}
		took, err = riverDrain(ctx, pool, n)
		return err
	})
	return took, err
}

func riverDrain(ctx context.Context, pool *pgxpool.Pool, n int) (time.Duration, error) {
	w := &riverWorker{n: int64(n), done: make(chan struct{})}
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:       workers,
		FetchCooldown: time.Millisecond,
		Logger:        slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	for inserted := 0; inserted < n; {
		batch := make([]river.InsertManyParams, min(1_000, n-inserted))
		for i := range batch {
			batch[i] = river.InsertManyParams{Args: riverArgs{Payload: make([]byte, payloadSize)}}
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return 0, err
		}
		inserted += len(batch)
	}
	begin := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	select {
	case <-w.done:
		return time.Since(begin), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("drain by River after %d jobs: %w", w.handled.Load(), context.Cause(ctx))
	}
}
