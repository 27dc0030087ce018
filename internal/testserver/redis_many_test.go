package testserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func TestRedisClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := RedisCluster(t)
	client := cluster.Client(t)
	const keys = 60
	for i := range keys {
		if err := client.Set(ctx, fmt.Sprintf("k%d", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for _, node := range cluster.Nodes {
		n, err := node.Client(t).DBSize(ctx).Result()
		if err != nil || n == 0 {
			t.Errorf("%s has %d keys, %v", node.Addr(), n, err)
		}
		total += n
	}
	if total != keys {
		t.Errorf("%d keys, want %d", total, keys)
	}
	if err := client.MSet(ctx, "a", 1, "b", 2).Err(); err == nil {
		t.Error("keys of different slots in one command: this is no cluster")
	}
	if err := client.MSet(ctx, "{q}a", 1, "{q}b", 2).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisReplicaFollowsAndIsReadOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := Redis(t, Password("secret"))
	to := primary.Client(t)
	if err := to.Set(ctx, "before", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	replica := RedisReplica(t, primary)
	from := replica.Client(t)
	if err := from.Get(ctx, "before").Err(); err != nil {
		t.Errorf("what the primary had: %v", err)
	}
	if err := to.Set(ctx, "after", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return from.Get(ctx, "after").Err() })
	if err := from.Set(ctx, "k", 1, 0).Err(); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a write to the replica: %v", err)
	}
}
