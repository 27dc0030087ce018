package faultsuite

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
	"github.com/rota-queue/rota/internal/testserver"
)

// slowSettle is a backend whose settles go by another handle, which is slow.
type slowSettle struct {
	worker.Backend
	slow core.Leaser
}

func (b slowSettle) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	return b.slow.Settle(ctx, queue, outcomes)
}

// Settles that take long delay no claim of another group.
func testSlowSettle(t *testing.T, store Store) {
	const (
		groups = 60
		slots  = 4
		delay  = 500 * time.Millisecond
		// If claims waited for settles, groups would start slots at a time: 7.5 s.
		bound = 5 * delay
	)
	s := newStorm(t, store, store.Start(t), true)
	proxy := testserver.NewProxy(t, s.server.Addr(), store.Split)
	slow := open(t, store.Open, via(t, s.server.URL(), proxy))
	var jobs []core.NewJob
	for i := range groups {
		jobs = append(jobs, core.NewJob{ID: fmt.Sprintf("j%d", i), Group: fmt.Sprintf("g%d", i)})
	}
	s.publish(jobs...)

	var started atomic.Int64
	var longest atomic.Int64
	all := make(chan struct{})
	log := &log{w: lineWriter(func(line string) { s.history.add(parse("test", line)) })}
	w, err := worker.New(recorder{slowSettle{s.backend, slow}, log}, worker.Config{
		Queues: []worker.Queue{{Name: s.queue}}, Concurrency: slots, Lease: 4 * time.Second,
		Observer: worker.Observer{Claimed: func(_ string, _ int, took time.Duration) {
			for {
				old := longest.Load()
				if int64(took) <= old || longest.CompareAndSwap(old, int64(took)) {
					return
				}
			}
		}},
		Handler: worker.HandlerFunc(func(context.Context, *worker.Task) error {
			if started.Add(1) == groups {
				close(all)
			}
			return nil
		}),
	})
	s.check(err)
	proxy.Delay(delay)
	from := time.Now()
	s.check(w.Start(s.ctx))
	select {
	case <-all:
	case <-time.After(patience):
		t.Errorf("only %d of %d groups started", started.Load(), groups)
	}
	took := time.Since(from)
	t.Logf("%d groups started within %v on %d slots while a settle takes %v; the longest claim took %v",
		groups, took.Round(time.Millisecond), slots, delay, time.Duration(longest.Load()).Round(time.Millisecond))
	if took > bound {
		t.Errorf("%d groups took %v to start on %d slots while a settle takes %v, want less than %v", groups, took, slots, delay, bound)
	}
	s.drain()
	s.check(w.Stop(s.ctx))
	s.judge()
}

// lineWriter is a function that gets each line written, without its end.
type lineWriter func(string)

func (w lineWriter) Write(p []byte) (int, error) {
	w(string(p[:len(p)-1]))
	return len(p), nil
}
