package rotaredis

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rota-queue/rota/internal/testserver"
)

func TestProbe(t *testing.T) {
	if os.Getenv("ROTA_PROBE") == "" {
		t.SkipNow()
	}
	ctx := context.Background()
	server := testserver.Redis(t)
	c := server.Client(t)
	lib := func(names, body string) string {
		return constants(withoutComments(libraries(names) + body))
	}
	for _, p := range []struct{ name, text string }{
		{"return 1", "return 1"},
		{"base", lib("base", "return 1")},
		{"base queue", lib("base queue", "return 1")},
		{"base queue job group", lib("base queue job group", "return 1")},
		{"clock", lib("base", "return clock()")},
		{"open", lib("base queue", "local q = open(KEYS[1]) return 1")},
		{"open close", lib("base queue", "local q = open(KEYS[1]) close(q) return 1")},
		{"hset", "redis.call('HSET', 'k', 'a', '1') return 1"},
		{"nonce", lib("base nonce", "remember('x', clock(), ARGV[1], 'answer') return 1")},
		{"cmsgpack", "local x = cmsgpack.pack({{},1,{}}) return 1"},
	} {
		sha, err := c.ScriptLoad(ctx, p.text).Result()
		if err != nil {
			t.Fatal(p.name, err)
		}
		best := time.Hour
		for round := range 10 {
			pipe := c.Pipeline()
			for i := range 500 {
				pipe.EvalSha(ctx, sha, []string{"rota:{q}:q:"}, fmt.Sprint("nonce", round, i), "2", "3", "4")
			}
			start := time.Now()
			if _, err := pipe.Exec(ctx); err != nil && err != redis.Nil {
				t.Fatal(p.name, err)
			}
			best = min(best, time.Since(start)/500)
		}
		fmt.Printf("%-25s %v\n", p.name, best)
	}
}
