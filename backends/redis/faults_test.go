package rotaredis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/backends/redis"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/faultsuite"
	"github.com/rota-queue/rota/internal/testserver"
)

func init() { faultsuite.RegisterChildren("redis", openForFaults) }

func openForFaults(ctx context.Context, url string) (core.Backend, error) {
	return rotaredis.Open(ctx, url, rotaredis.Options{})
}

// openRetrying opens with more repetitions by the client library than a cut
// connection can outlast, and with none of its defaults that would hide one.
func openRetrying(ctx context.Context, url string) (core.Backend, error) {
	return rotaredis.Open(ctx, url+"?max_retries=10&min_retry_backoff=1ms&max_retry_backoff=10ms", rotaredis.Options{})
}

// forgetScripts makes the server forget all scripts, as a restart does.
func forgetScripts(ctx context.Context, url string) error {
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return err
	}
	client := goredis.NewClient(opts)
	defer client.Close()
	return client.ScriptFlush(ctx).Err()
}

// durableRedis rewrites the append-only file after a restart, as an operator should
// after a crash. Redis (7.0 at least, and its sources of October 2024) and Valkey
// before valkey-io/valkey#4342 leave a MULTI open in a file that was torn within a
// script, and the start after the next crash then carries out half of that script.
type durableRedis struct {
	*testserver.RedisServer
	tb testing.TB
}

func (s durableRedis) Restart() {
	s.RedisServer.Restart()
	if err := rewriteAOF(s.URL()); err != nil {
		s.tb.Errorf("rewriting the append-only file: %v", err)
	}
}

func rewriteAOF(url string) error {
	opts, err := goredis.ParseURL(url)
	if err != nil {
		return err
	}
	client := goredis.NewClient(opts)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.BgRewriteAOF(ctx).Err(); err != nil {
		return err
	}
	for {
		info, err := client.Info(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFaults(t *testing.T) {
	faultsuite.Run(t, faultsuite.Store{
		Name:  "redis",
		Start: func(t testing.TB) faultsuite.Server { return durableRedis{testserver.Redis(t, testserver.AOF()), t} },
		StartClock: func(t testing.TB, d time.Duration) faultsuite.ClockServer {
			return testserver.Redis(t, testserver.AOF(), testserver.ClockOffset(d))
		},
		Stalls:  true, // lua/lib_queue.lua: the clock of a queue stands still until the server's has caught up
		Open:    openForFaults,
		Clients: map[string]faultsuite.Opener{"Retrying": openRetrying},
		Forget:  forgetScripts,
		Split:   testserver.RESP,
	})
}
