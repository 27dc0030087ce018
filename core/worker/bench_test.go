package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// publish puts n jobs into queue q, spread over groups (0: without a group).
func publish(t testing.TB, p core.Producer, n, groups int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var req core.PublishRequest
		for i := from; i < min(n, from+1000); i++ {
			j := core.NewJob{Queue: "q", ID: fmt.Sprint("job-", i)}
			if groups > 0 {
				j.Group = fmt.Sprint("g", i%groups)
			}
			req.Jobs = append(req.Jobs, j)
		}
		if _, err := p.Publish(context.Background(), req); err != nil {
			t.Fatal(err)
		}
	}
}

// remote adds the time of a round trip to each call of the claim path.
type remote struct {
	worker.Backend
	trip         time.Duration
	calls, batch atomic.Int64
}

func (r *remote) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	r.calls.Add(1)
	time.Sleep(r.trip)
	res, err := r.Backend.Claim(ctx, req)
	r.batch.Add(int64(len(res.Leases)))
	return res, err
}

func (r *remote) Settle(ctx context.Context, q string, o []core.Outcome) ([]core.SettleResult, error) {
	r.calls.Add(1)
	time.Sleep(r.trip)
	return r.Backend.Settle(ctx, q, o)
}

// BenchmarkThroughput runs empty handlers over a backlog. calls/job counts claims
// and settles.
func BenchmarkThroughput(b *testing.B) {
	for _, slots := range []int{1, 32, 256} {
		for _, groups := range []int{0, 1000, 1} {
			for _, trip := range []time.Duration{0, 200 * time.Microsecond} {
				b.Run(fmt.Sprintf("slots=%d/groups=%d/trip=%v", slots, groups, trip), func(b *testing.B) {
					store := memory.New(memory.Options{})
					publish(b, store, b.N, groups)
					r := &remote{Backend: store, trip: trip}
					b.ReportAllocs()
					b.ResetTimer()
					runAll(b, r, slots, b.N, nothing)
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
					b.ReportMetric(float64(r.calls.Load())/float64(b.N), "calls/job")
				})
			}
		}
	}
}

// runAll runs a worker until it has settled n jobs.
func runAll(b testing.TB, backend worker.Backend, slots, n int, h worker.Handler) {
	b.Helper()
	done := make(chan struct{})
	var settled atomic.Int64
	w := start(b, backend, worker.Config{Concurrency: slots, Handler: h, Observer: worker.Observer{
		Settled: func(worker.Settlement) {
			if settled.Add(1) == int64(n) {
				close(done)
			}
		},
	}})
	<-done
	stop(b, w)
}

// BenchmarkLatency measures the time from a publish on an idle worker to the
// start of the handler.
func BenchmarkLatency(b *testing.B) {
	store := memory.New(memory.Options{})
	started := make(chan time.Time, 1)
	w := start(b, store, worker.Config{Handler: handle(func(context.Context, *worker.Task) error {
		started <- time.Now()
		return nil
	})})
	var all []time.Duration
	for b.Loop() {
		time.Sleep(time.Millisecond) // to be idle again
		sent := time.Now()
		if _, err := core.Publish(context.Background(), store, core.NewJob{Queue: "q"}); err != nil {
			b.Fatal(err)
		}
		all = append(all, (<-started).Sub(sent))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs/median")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs/p99")
	stop(b, w)
}

// BenchmarkBusySlots keeps slots busy with handlers that take a while.
func BenchmarkBusySlots(b *testing.B) {
	store := memory.New(memory.Options{})
	publish(b, store, b.N, 1000)
	r := &remote{Backend: store, trip: 200 * time.Microsecond}
	b.ReportAllocs()
	b.ResetTimer()
	runAll(b, r, 32, b.N, handle(func(context.Context, *worker.Task) error {
		time.Sleep(5 * time.Millisecond)
		return nil
	}))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64(r.calls.Load())/float64(b.N), "calls/job")
}

// endless hands out the same jobs over and over and believes everything.
type endless struct {
	fake
	leases []core.Lease
	next   int
}

func (e *endless) Claim(_ context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	res := core.ClaimResult{Leases: make([]core.Lease, req.Max)}
	for i := range res.Leases {
		res.Leases[i] = e.leases[e.next%len(e.leases)]
		e.next++
	}
	return res, nil
}

func (e *endless) Settle(_ context.Context, _ string, o []core.Outcome) ([]core.SettleResult, error) {
	return make([]core.SettleResult, len(o)), nil
}

// BenchmarkWorkerAlone is what the worker costs without a store.
func BenchmarkWorkerAlone(b *testing.B) {
	e := &endless{}
	for i := range 1000 {
		ref := core.LeaseRef{Queue: "q", JobID: fmt.Sprint(i)}
		e.leases = append(e.leases, core.Lease{LeaseRef: ref, Job: &core.Job{ID: ref.JobID}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	runAll(b, e, 32, b.N, nothing)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
