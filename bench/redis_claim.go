package main

import (
	"context"

	"github.com/rota-queue/rota/core"
)

func redisClaim(ctx context.Context, s settings, r *report) error {
	return withRedis(func(server *redisServer) error {
		return server.withBackend(ctx, func(b core.Backend) error { return claimCost(ctx, s, r, b) })
	})
}
