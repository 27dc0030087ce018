package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
)

// errClusterNode tells that a client of one server talks to a node of a cluster.
var errClusterNode = errors.New("the server is part of a cluster and the client is not a cluster client")

// facts is what a server says about itself in INFO, by field.
type facts map[string]string

// examine asks the server, or each primary of a cluster, about itself.
func (b *Backend) examine(ctx context.Context) ([]facts, error) {
	var mu sync.Mutex
	var all []facts
	ask := func(ctx context.Context, client *redis.Client) error {
		text, err := client.Info(ctx).Result()
		if errorWord(err) == "NOPERM" {
			b.opts.Logger.Warn("rota: the Redis user may not ask INFO, so version, role and eviction policy are not checked", "error", err)
			return client.Time(ctx).Err()
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, parseFacts(text))
		return nil
	}
	var err error
	switch client := b.client.(type) {
	case *redis.Client:
		err = ask(ctx, client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, ask)
	default:
		err = fmt.Errorf("a client of type %T is not known", client)
	}
	if err != nil {
		return nil, storeError("open", err)
	}
	return all, nil
}

func parseFacts(info string) facts {
	f := facts{}
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[key] = value
		}
	}
	return f
}

// judge refuses servers that can not keep the promises and warns of those that
// could break them.
func (b *Backend) judge(all []facts) error {
	for _, f := range all {
		version := f["redis_version"]
		switch {
		case f["cluster_enabled"] == "1" && !b.cluster():
			return fmt.Errorf("redis: open: %w: %w", core.ErrMisconfigured, errClusterNode)
		case tooOld(version):
			return fmt.Errorf("redis: open: %w: the server is version %s, at least 6.2 is needed", core.ErrMisconfigured, version)
		case f["role"] == "slave":
			return fmt.Errorf("redis: open: %w: the server is a replica of %s:%s; give the address of the primary", core.ErrMisconfigured, f["master_host"], f["master_port"])
		}
		if policy := f["maxmemory_policy"]; policy != "" && policy != "noeviction" {
			b.opts.Logger.Warn("rota: THIS REDIS MAY DELETE JOBS: its maxmemory-policy is not noeviction",
				"policy", policy, "maxmemory", f["maxmemory"], "server", f["tcp_port"],
				"remedy", "CONFIG SET maxmemory-policy noeviction")
		}
	}
	return nil
}

func (b *Backend) cluster() bool {
	_, ok := b.client.(*redis.ClusterClient)
	return ok
}

// tooOld reports whether the version is below 6.2. An unknown one is not.
func tooOld(version string) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major < 6 || major == 6 && minor < 2)
}
