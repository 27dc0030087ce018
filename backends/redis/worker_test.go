package rotaredis

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-queue/rota/core/worker"
	"github.com/rota-queue/rota/internal/testserver"
)

func TestWorkerDrain(t *testing.T) {
	if os.Getenv("ROTA_DRAIN") == "" {
		t.SkipNow()
	}
	ctx := context.Background()
	server := testserver.Redis(t)
	back, err := Open(ctx, server.URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for round := range 4 {
		for _, groups := range []int{1000, 0} {
			queue := fmt.Sprint("q", round, groups)
			const n = 50000
			publishAll(t, back, grouped(queue, n, groups, 50), 1000)
			back.client.ConfigResetStat(ctx)
			var handled atomic.Int64
			done := make(chan struct{})
			w, err := worker.New(back, worker.Config{
				Queues: []worker.Queue{{Name: queue}}, Concurrency: 32,
				Handler: worker.HandlerFunc(func(context.Context, *worker.Task) error {
					if handled.Add(1) == n {
						close(done)
					}
					return nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 && groups > 0 {
				f, _ := os.Create("/tmp/drain.prof")
				pprof.StartCPUProfile(f)
			}
			start := time.Now()
			if err := w.Start(ctx); err != nil {
				t.Fatal(err)
			}
			<-done
			took := time.Since(start)
			if round == 0 && groups > 0 {
				pprof.StopCPUProfile()
			}
			if err := w.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			info, _ := back.client.Info(ctx, "commandstats").Result()
			f := parseFacts(info)
			fmt.Printf("groups %d: %.0f jobs/s evalsha %s\n", groups, n/took.Seconds(), f["cmdstat_evalsha"])
			for _, c := range []string{"zadd", "zrem", "hmget", "mget", "hset", "hdel", "unlink", "exists", "zrange", "zrangebyscore", "hget", "publish", "get", "getrange", "setrange"} {
				fmt.Print(c, " ", f["cmdstat_"+c], "; ")
			}
			fmt.Println()
		}
	}
}
