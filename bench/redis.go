package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/backends/redis"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

const payloadSize = 64

// redisServer is the private server of one benchmark.
type redisServer struct {
	addr   string
	client *redis.Client
	stop   func()
}

func startRedis() (*redisServer, error) {
	server, err := testserver.LaunchRedis()
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return &redisServer{addr: server.Addr(), client: client, stop: func() {
		client.Close()
		server.Close()
	}}, nil
}

// withRedis runs f with an empty private server.
func withRedis(f func(*redisServer) error) error {
	server, err := startRedis()
	if err != nil {
		return err
	}
	defer server.stop()
	return f(server)
}

func (s *redisServer) flush(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }

// backend opens rota on the server with a client of its own.
func (s *redisServer) backend(ctx context.Context) (core.Backend, error) {
	return rotaredis.Open(ctx, "redis://"+s.addr, rotaredis.Options{})
}

// withBackend runs f with an empty store.
func (s *redisServer) withBackend(ctx context.Context, f func(core.Backend) error) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	b, err := s.backend(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	return f(b)
}

// publish stores n jobs round robin over groups (0: none) in batches.
func publish(ctx context.Context, b core.Producer, queue string, n, groups, batch int) error {
	payload := make([]byte, payloadSize)
	jobs := make([]core.NewJob, 0, batch)
	for i := range n {
		job := core.NewJob{Queue: queue, Kind: "bench", Payload: payload}
		if groups > 0 {
			job.Group = fmt.Sprintf("group-%d", i%groups)
		}
		if jobs = append(jobs, job); len(jobs) < batch && i < n-1 {
			continue
		}
		results, err := b.Publish(ctx, core.PublishRequest{Jobs: jobs})
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Err != nil {
				return r.Err
			}
		}
		jobs = jobs[:0]
	}
	return nil
}
