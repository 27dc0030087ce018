package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/limit.lua
var limitSource string

// redisLimit sets the core worker beside a script that does only what no queue
// of groups can leave out, called in batches of 50 by one client.
func redisLimit(ctx context.Context, s settings, r *report) error {
	rounds, n := s.pick(3, 1), s.pick(50_000, 3_000)
	return withRedis(func(server *redisServer) error {
		var limit, rota []float64
		for range rounds {
			rate, err := bareDrain(ctx, server, n)
			if err != nil {
				return err
			}
			limit = append(limit, rate)
			took, err := rotaRound(ctx, server, n, 1_000)
			if err != nil {
				return err
			}
			rota = append(rota, perSecond(n, took))
		}
		r.series("bare Lua, batches of 50", "jobs/s", limit...)
		r.series("rota, 1,000 groups", "jobs/s", rota...)
		share := ratios(rota, limit)
		r.series("rota / bare Lua", "", share...)
		return nil
	})
}

func bareDrain(ctx context.Context, server *redisServer, n int) (float64, error) {
	if err := server.flush(ctx); err != nil {
		return 0, err
	}
	const groups, prefix = 1_000, "line:"
	payload := make([]byte, payloadSize)
	pipe := server.client.Pipeline()
	for i := range n {
		pipe.RPush(ctx, fmt.Sprint(prefix, i%groups), payload)
	}
	for g := range groups {
		pipe.ZAdd(ctx, "ready", redis.Z{Score: float64(g), Member: fmt.Sprint(g)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	script := redis.NewScript(limitSource)
	begin := time.Now()
	for done := 0; done < n; {
		got, err := script.Run(ctx, server.client, []string{"ready"}, 50, prefix).Int()
		if err != nil {
			return 0, err
		}
		if got == 0 {
			return 0, fmt.Errorf("the bare script stopped after %d of %d jobs", done, n)
		}
		done += got
	}
	return perSecond(n, time.Since(begin)), nil
}
