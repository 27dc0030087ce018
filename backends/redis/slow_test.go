package rotaredis

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rota-queue/rota/internal/testserver"
)

// TestScriptTimes prints how long the server takes for each script, from its slow
// log: minimum, quartile and median say more than a mean on a busy machine.
func TestScriptTimes(t *testing.T) {
	if os.Getenv("ROTA_SCRIPT_TIMES") == "" {
		t.SkipNow()
	}
	ctx := context.Background()
	server := testserver.Redis(t, testserver.Args("--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"))
	back, err := Open(ctx, server.URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	names := map[string]string{}
	for _, s := range []*script{scriptPublish, scriptPublishPlain, scriptClaim, scriptSettle} {
		names[s.sha] = s.name
	}
	for _, c := range []struct{ batch, groups int }{{1, 1000}, {32, 1000}, {32, 0}, {100, 1000}, {1000, 1000}} {
		queue := fmt.Sprint("q", c.batch, "-", c.groups)
		n := min(20000, 500*c.batch)
		publishAll(t, back, grouped(queue, n, c.groups, 50), c.batch)
		for done := 0; done < n; {
			done += claimAndSettle(t, back, queue, c.batch)
		}
		logs, err := back.client.SlowLogGet(ctx, 100000).Result()
		if err != nil {
			t.Fatal(err)
		}
		times := map[string][]time.Duration{}
		for _, l := range logs {
			if len(l.Args) > 1 {
				if name, ok := names[l.Args[1]]; ok {
					times[name] = append(times[name], l.Duration)
				}
			}
		}
		for name, d := range times {
			slices.Sort(d)
			per := func(q int) float64 { return float64(d[len(d)*q/100].Nanoseconds()) / float64(c.batch) / 1000 }
			fmt.Printf("%-8s batch=%d groups=%d: per job min %.1f q25 %.1f median %.1f us (%d calls)\n", name, c.batch, c.groups, per(0), per(25), per(50), len(d))
		}
		back.client.Do(ctx, "slowlog", "reset")
	}
}
