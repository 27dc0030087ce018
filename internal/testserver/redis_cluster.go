package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	clusterNodes = 3
	clusterSlots = 16384
)

// RedisClusterServers is a Redis Cluster of three masters without replicas.
type RedisClusterServers struct {
	// Nodes hold the slots in equal parts, in order. Each can be killed and
	// restarted by itself; while one is down the cluster answers for no slot.
	Nodes []*RedisServer
}

// RedisCluster starts a cluster that lives until the test ends, and returns
// when all its nodes agree that it serves all slots.
func RedisCluster(t testing.TB, opts ...Option) *RedisClusterServers {
	t.Helper()
	cfg := newConfig(opts)
	cfg.args = append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "5000",
	}, cfg.args...)
	c := &RedisClusterServers{}
	for range clusterNodes {
		c.Nodes = append(c.Nodes, startRedis(t, cfg, busOffset))
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyPatience)
	defer cancel()
	if err := c.form(ctx); err != nil {
		t.Fatalf("testserver: Redis Cluster: %v", err)
	}
	return c
}

// Addrs returns the nodes' addresses.
func (c *RedisClusterServers) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// Client returns a cluster client that is closed when the test ends.
func (c *RedisClusterServers) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		Password:                 c.Nodes[0].cfg.password,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// form makes one cluster of the nodes, without redis-cli.
func (c *RedisClusterServers) form(ctx context.Context) error {
	clients := make([]*redis.Client, len(c.Nodes))
	for i, node := range c.Nodes {
		clients[i] = redis.NewClient(node.options())
		defer clients[i].Close()
	}
	for i, client := range clients {
		// Different epochs from the start spare the nodes to settle a collision.
		if err := client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		first, next := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes
		if err := client.ClusterAddSlotsRange(ctx, first, next-1).Err(); err != nil {
			return err
		}
	}
	// Each meets each: waiting for gossip to introduce them can take seconds.
	for i, node := range c.Nodes {
		host, port, err := net.SplitHostPort(node.Addr())
		if err != nil {
			return err
		}
		for _, client := range slices.Delete(slices.Clone(clients), i, i+1) {
			if err := client.ClusterMeet(ctx, host, port).Err(); err != nil {
				return err
			}
		}
	}
	for _, client := range clients {
		if err := await(ctx, func() error { return clusterReady(ctx, client) }); err != nil {
			return err
		}
	}
	return nil
}

func clusterReady(ctx context.Context, client *redis.Client) error {
	info, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for field, want := range map[string]string{
		"cluster_state":       "ok",
		"cluster_slots_ok":    strconv.Itoa(clusterSlots),
		"cluster_known_nodes": strconv.Itoa(clusterNodes),
	} {
		if got := infoField(info, field); got != want {
			return fmt.Errorf("%s is %q, not %q", field, got, want)
		}
	}
	return nil
}

// await asks again until there is no error. At the context's end it returns
// the last one.
func await(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}
