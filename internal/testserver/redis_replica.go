package testserver

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisReplica starts a read-only replica that lives until the test ends, and
// returns when it has all the data that its primary had. Replication is
// asynchronous: a write that the primary has acknowledged may still be missing.
func RedisReplica(t testing.TB, of *RedisServer, opts ...Option) *RedisServer {
	t.Helper()
	host, port, err := net.SplitHostPort(of.Addr())
	if err != nil {
		t.Fatal(err)
	}
	cfg := newConfig(opts)
	if of.cfg.password != "" {
		cfg.args = append(cfg.args, "--masterauth", of.cfg.password)
	}
	cfg.args = append(cfg.args, "--replicaof", host+" "+port)
	replica := startRedis(t, cfg, 0)
	ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
	defer cancel()
	client := redis.NewClient(replica.options())
	defer client.Close()
	if err := await(ctx, func() error { return linkUp(ctx, client) }); err != nil {
		t.Fatalf("testserver: Redis replica: %v", err)
	}
	return replica
}

func linkUp(ctx context.Context, client *redis.Client) error {
	info, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if got := infoField(info, "master_link_status"); got != "up" {
		return fmt.Errorf("the link to the primary is %q", got)
	}
	return nil
}
