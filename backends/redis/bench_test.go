package rotaredis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// serverTime gives how much processor time the server's main thread has used so
// far. Unlike the times in INFO commandstats it does not grow because others use
// the processor too.
func serverTime(b *testing.B, client redis.UniversalClient) time.Duration {
	b.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	f := parseFacts(info)
	var sum float64
	for _, name := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		seconds, err := strconv.ParseFloat(f[name], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}

func openBench(b *testing.B) *Backend {
	b.Helper()
	back, err := Open(context.Background(), testserver.SharedRedis(b).URL(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = back.Close() })
	return back
}

// grouped makes n jobs spread evenly over groups, or without a group.
func grouped(queue string, n, groups, payload int) []core.NewJob {
	body := []byte(strings.Repeat("x", payload))
	jobs := make([]core.NewJob, n)
	for i := range jobs {
		jobs[i] = core.NewJob{Queue: queue, Kind: "bench", Payload: body}
		if groups > 0 {
			jobs[i].Group = fmt.Sprintf("group-%06d", i%groups)
		}
	}
	return jobs
}

func publishAll(b testing.TB, back core.Producer, jobs []core.NewJob, size int) {
	b.Helper()
	for start := 0; start < len(jobs); start += size {
		if _, err := back.Publish(context.Background(), core.PublishRequest{Jobs: jobs[start:min(start+size, len(jobs))]}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPublish publishes in batches; one operation is one job.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		for _, groups := range []int{1000, 0} {
			b.Run(fmt.Sprintf("batch=%d/groups=%d", size, groups), func(b *testing.B) {
				back := openBench(b)
				queue := testserver.UniqueName(b)
				jobs := grouped(queue, b.N, groups, 50)
				before := serverTime(b, back.client)
				b.ReportAllocs()
				b.ResetTimer()
				publishAll(b, back, jobs, size)
				b.StopTimer()
				perJob(b, serverTime(b, back.client)-before)
				if err := back.DeleteQueue(context.Background(), queue, true); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func perJob(b *testing.B, server time.Duration) {
	b.ReportMetric(float64(server.Nanoseconds())/float64(b.N), "server-ns/job")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkDrain claims and settles in batches by several workers at once; one
// operation is one job.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct{ batch, groups, workers int }{
		{1, 1000, 1}, {32, 1000, 1}, {32, 1000, 2}, {32, 1000, 4}, {32, 0, 2}, {100, 1000, 2},
	} {
		b.Run(fmt.Sprintf("batch=%d/groups=%d/workers=%d", c.batch, c.groups, c.workers), func(b *testing.B) {
			back := openBench(b)
			queue := testserver.UniqueName(b)
			publishAll(b, back, grouped(queue, b.N, c.groups, 50), 1000)
			before := serverTime(b, back.client)
			var done atomic.Int64
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range c.workers {
				wg.Go(func() {
					for done.Load() < int64(b.N) {
						done.Add(int64(claimAndSettle(b, back, queue, c.batch)))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			perJob(b, serverTime(b, back.client)-before)
			if err := back.DeleteQueue(context.Background(), queue, true); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func claimAndSettle(b testing.TB, back *Backend, queue string, batch int) int {
	ctx := context.Background()
	res, err := back.Claim(ctx, core.ClaimRequest{Queue: queue, Max: batch, Lease: time.Minute, Owner: "bench"})
	if err != nil {
		b.Error(err)
		return 1 << 30
	}
	out := make([]core.Outcome, len(res.Leases))
	for i, l := range res.Leases {
		out[i] = core.Outcome{Lease: l.LeaseRef, Action: core.Complete}
	}
	settled, err := back.Settle(ctx, queue, out)
	if err != nil {
		b.Error(err)
		return 1 << 30
	}
	for _, s := range settled {
		if s.Err != nil {
			b.Error(s.Err)
		}
	}
	return len(settled)
}

// BenchmarkClaimBacklog claims from and releases into backlogs of different
// sizes, which must cost the same; one operation is one claim of 32 groups.
func BenchmarkClaimBacklog(b *testing.B) {
	for _, groups := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			ctx := context.Background()
			back := openBench(b)
			queue := testserver.UniqueName(b)
			publishAll(b, back, grouped(queue, groups, groups, 50), 1000)
			var claims time.Duration
			b.ResetTimer()
			for range b.N {
				before := serverTime(b, back.client)
				res, err := back.Claim(ctx, core.ClaimRequest{Queue: queue, Max: 32, Lease: time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				claims += serverTime(b, back.client) - before
				back.giveBack(queue, res.Leases)
			}
			b.StopTimer()
			b.ReportMetric(float64(claims.Nanoseconds())/float64(b.N), "server-ns/claim")
			if err := back.DeleteQueue(ctx, queue, true); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkScripts reads from the server's slow log how long it takes for each
// script, by job: on a busy machine the median says more than a mean, and the
// minimum what the script itself costs. One operation is one job.
func BenchmarkScripts(b *testing.B) {
	for _, c := range []struct{ batch, groups int }{{1, 1000}, {32, 1000}, {32, 0}, {100, 1000}, {1000, 1000}} {
		b.Run(fmt.Sprintf("batch=%d/groups=%d", c.batch, c.groups), func(b *testing.B) {
			server := testserver.Redis(b, testserver.Args("--slowlog-log-slower-than", "0", "--slowlog-max-len", "100000"))
			back := open(b, server.URL(), Options{})
			publishAll(b, back, grouped("q", b.N, c.groups, 50), c.batch)
			for done := 0; done < b.N; {
				done += claimAndSettle(b, back, "q", c.batch)
			}
			logs, err := back.client.SlowLogGet(context.Background(), 100_000).Result()
			if err != nil {
				b.Fatal(err)
			}
			for _, s := range []*script{scriptPublishPlain, scriptClaim, scriptSettle} {
				var times []time.Duration
				for _, l := range logs {
					if len(l.Args) > 1 && l.Args[1] == s.sha && l.Duration > 20*time.Microsecond { // less is NOSCRIPT
						times = append(times, l.Duration)
					}
				}
				if len(times) == 0 {
					continue
				}
				slices.Sort(times)
				per := float64(min(c.batch, b.N)) * 1000
				b.ReportMetric(float64(times[0].Nanoseconds())/per, s.op+"-min-us/job")
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/per, s.op+"-median-us/job")
			}
		})
	}
}

// BenchmarkMemory tells what a waiting job takes in the server's memory.
func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct{ groups, payload int }{{0, 50}, {100, 50}, {b.N, 50}, {1000, 1000}} {
		name := fmt.Sprintf("groups=%d/payload=%d", c.groups, c.payload)
		if c.groups == b.N {
			name = fmt.Sprintf("groups=all/payload=%d", c.payload)
		}
		b.Run(name, func(b *testing.B) {
			server := testserver.Redis(b)
			back := open(b, server.URL(), Options{})
			used := func() float64 {
				info, err := back.client.Info(context.Background(), "memory").Result()
				if err != nil {
					b.Fatal(err)
				}
				n, err := strconv.ParseFloat(parseFacts(info)["used_memory"], 64)
				if err != nil {
					b.Fatal(err)
				}
				return n
			}
			groups := c.groups
			if groups == 1 {
				groups = b.N
			}
			publishAll(b, back, grouped("warm", 1000, 10, 0), 1000)
			before := used()
			publishAll(b, back, grouped("q", b.N, groups, c.payload), 1000)
			b.ReportMetric((used()-before)/float64(b.N), "bytes/job")
		})
	}
}
