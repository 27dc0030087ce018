package testserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// SharedRedisServer is a Redis that several tests use at the same time, and
// perhaps other programs too. Nobody may flush, stop or reconfigure it.
type SharedRedisServer struct{ redisTarget }

var sharedRedis struct {
	sync.Mutex
	server *SharedRedisServer
	err    error
	proc   *redisProcess // nil for a server that is not ours
	dir    string
}

// SharedRedis returns the one Redis of this test process: the server that
// ROTA_TEST_REDIS (a redis:// URL) names, else one that is started by the first
// call and stopped by [Main], which the package's TestMain must call. Each test
// must keep to names of its own, such as [UniqueName] makes.
func SharedRedis(t testing.TB) *SharedRedisServer {
	t.Helper()
	if !mainRuns.Load() {
		t.Fatal("testserver.SharedRedis needs a TestMain that calls testserver.Main")
	}
	sharedRedis.Lock()
	defer sharedRedis.Unlock()
	if sharedRedis.server == nil && sharedRedis.err == nil {
		sharedRedis.server, sharedRedis.err = openSharedRedis()
	}
	if sharedRedis.err != nil {
		t.Fatalf("testserver: shared Redis: %v", sharedRedis.err)
	}
	return sharedRedis.server
}

func openSharedRedis() (*SharedRedisServer, error) {
	if url := os.Getenv("ROTA_TEST_REDIS"); url != "" {
		return givenRedis(url)
	}
	dir, err := os.MkdirTemp("", "rota-test-redis-")
	if err != nil {
		return nil, err
	}
	sharedRedis.dir = dir
	p, err := newRedisProcess(dir, config{}, 0)
	if err != nil {
		return nil, fmt.Errorf("%w\n(ROTA_TEST_REDIS can name a running server instead, by its redis:// URL)", err)
	}
	sharedRedis.proc = p
	return &SharedRedisServer{p.redisTarget}, nil
}

// givenRedis checks that a server which is not ours answers.
func givenRedis(url string) (*SharedRedisServer, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("ROTA_TEST_REDIS: %w", err)
	}
	s := &SharedRedisServer{redisTarget{addr: opts.Addr, url: url}}
	client := redis.NewClient(s.options())
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("the server that ROTA_TEST_REDIS names does not answer: %w", err)
	}
	return s, nil
}

// stopSharedRedis ends what SharedRedis started.
func stopSharedRedis() error {
	sharedRedis.Lock()
	defer sharedRedis.Unlock()
	var errs []error
	if sharedRedis.proc != nil {
		if err := sharedRedis.proc.close(); err != nil {
			errs = append(errs, fmt.Errorf("shared redis: %w\n%s", err, sharedRedis.proc.log(0)))
		}
	}
	if sharedRedis.dir != "" {
		errs = append(errs, os.RemoveAll(sharedRedis.dir))
	}
	sharedRedis.server, sharedRedis.proc, sharedRedis.dir = nil, nil, ""
	return errors.Join(errs...)
}

// UniqueName returns a name for a queue, table or key that nothing else uses,
// on a server that outlives this run too. It starts with the test's name and
// has only letters, digits and dashes.
func UniqueName(t testing.TB) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, t.Name())
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	return name[:min(len(name), 40)] + "-" + hex.EncodeToString(random[:])
}
