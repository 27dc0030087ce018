package worker_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// gated is a handler that is quick until its gate is shut, and then waits for it
// to open. It counts how many run at once.
type gated struct {
	mu        sync.Mutex
	gate      chan struct{} // nil: open
	now, most atomic.Int32
	calledOf  sync.Map // jobs whose handlers were called
	afterGate func(task *worker.Task) error
}

func (g *gated) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate = make(chan struct{})
}

func (g *gated) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.gate)
	g.gate = nil
}

func (g *gated) Handle(_ context.Context, task *worker.Task) error {
	g.most.Store(max(g.most.Load(), g.now.Add(1)))
	defer g.now.Add(-1)
	g.calledOf.Store(task.Job.ID, true)
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate == nil {
		return nil
	}
	<-gate
	if g.afterGate != nil {
		return g.afterGate(task)
	}
	return nil
}

// warm lets a worker learn that its handlers are quick, and then shuts the gate
// and gives it n jobs, one for each group g1, g2 ...
func (g *gated) warm(f *fake, n int) {
	f.addMany(200)
	pass(2 * time.Second)
	g.shut()
	for i := range n {
		f.add(group(i+1), &core.Job{ID: group(i + 1)})
	}
	pass(1300 * time.Millisecond) // until the worker has polled, which it does in 0.75 to 1.25 s
}

func group(i int) string { return "g" + string(rune('0'+i/10)) + string(rune('0'+i%10)) }

const slotsUsed = 4

func startGated(t *testing.T, f *fake, g *gated, cfg worker.Config) *worker.Worker {
	cfg.Concurrency, cfg.Handler = slotsUsed, g
	return start(t, f, cfg)
}

func TestPrefetchNeedsQuickHandlers(t *testing.T) {
	for name, c := range map[string]struct {
		takes    time.Duration
		prefetch int
		strict   bool
		most     int // of the greatest claim
	}{
		"quick":            {0, 0, false, slotsUsed + 32},
		"set":              {0, 7, false, slotsUsed + 7},
		"none":             {0, int(core.None), false, slotsUsed},
		"slow":             {2 * time.Millisecond, 0, false, slotsUsed},
		"strict, 2 queues": {0, 0, true, slotsUsed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.addMany(1000)
				var now, most atomic.Int32
				cfg := worker.Config{Concurrency: slotsUsed, Prefetch: c.prefetch, Handler: handle(func(context.Context, *worker.Task) error {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					time.Sleep(c.takes)
					return nil
				})}
				if c.strict {
					cfg.Strict, cfg.Queues = true, []worker.Queue{{Name: "q"}, {Name: "other"}}
				}
				w := start(t, f, cfg)
				pass(10 * time.Second)
				stop(t, w)
				greatest := 0
				for _, req := range f.claims {
					greatest = max(greatest, req.Max)
				}
				if greatest != c.most {
					t.Errorf("the greatest claim was for %d groups, want %d", greatest, c.most)
				}
				if int(most.Load()) > slotsUsed {
					t.Errorf("%d handlers ran at once in %d slots", most.Load(), slotsUsed)
				}
				if n := len(f.actions()); n != 1000 {
					t.Errorf("%d of 1000 jobs were done", n)
				}
			})
		})
	}
}

// When handlers are suddenly slow, what was claimed ahead goes back soon, without
// an attempt spent, and no more is claimed ahead.
func TestPrefetchedGoBackWhenHandlersAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := &fake{}, &gated{}
		w := startGated(t, f, g, worker.Config{Prefetch: 6})
		g.warm(f, 30)
		if s := w.Stats(); s.Running != slotsUsed || s.Waiting != 0 || s.Released != 6 || f.held() != slotsUsed {
			t.Errorf("%+v and %d leases held, want %d running and the 6 claimed ahead given back", s, f.held(), slotsUsed)
		}
		pass(5 * time.Second)
		if s := w.Stats(); s.Released != 6 {
			t.Errorf("%d were given back later on", s.Released-6)
		}
		g.open()
		pass(10 * time.Second)
		stop(t, w)
		if s := w.Stats(); s.Completed != 230 || int(g.most.Load()) > slotsUsed {
			t.Errorf("%+v, %d at once", s, g.most.Load())
		}
		for _, l := range f.lanes {
			t.Errorf("job %s is left", l.jobs[0].ID)
		}
	})
}

// whileWaiting runs a test in the moment in which 4 handlers run and 6 tasks wait.
func whileWaiting(t *testing.T, afterGate func(*worker.Task) error, test func(f *fake, g *gated, w *worker.Worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f, g := &fake{wakes: make(chan core.Wake)}, &gated{afterGate: afterGate}
		w := startGated(t, f, g, worker.Config{Prefetch: 6, Lease: 3 * time.Second, Heartbeat: 5 * time.Millisecond})
		f.addMany(200)
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		pass(2 * time.Second)
		g.shut()
		for i := range 10 {
			f.add(group(i+1), &core.Job{ID: group(i + 1)})
		}
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		synctest.Wait()
		if s := w.Stats(); s.Running != slotsUsed || s.Waiting != 6 {
			t.Fatalf("%+v, want %d running and 6 waiting", s, slotsUsed)
		}
		test(f, g, w)
	})
}

func (g *gated) called(i int) bool {
	_, ok := g.calledOf.Load(group(i))
	return ok
}

func TestStopGivesBackWhatWaits(t *testing.T) {
	whileWaiting(t, nil, func(f *fake, g *gated, w *worker.Worker) {
		done := make(chan struct{})
		go func() { defer close(done); stop(t, w) }()
		synctest.Wait()
		if s := w.Stats(); s.Waiting != 0 || s.Released != 6 || s.Running != slotsUsed {
			t.Errorf("%+v: what waits must go back at once", s)
		}
		g.open()
		<-done
		if f.held() != 0 {
			t.Errorf("%d leases are still held", f.held())
		}
	})
}

func TestCancelledWhileWaiting(t *testing.T) {
	whileWaiting(t, nil, func(f *fake, g *gated, w *worker.Worker) {
		f.cancel(group(5))
		pass(10 * time.Millisecond) // a heartbeat
		g.open()
		pass(time.Second)
		if g.called(5) || !g.called(6) {
			t.Error("the handler of a job that was cancelled before it could start was called")
		}
		if s := w.Stats(); s.Cancelled != 1 || s.Completed != 209 {
			t.Errorf("%+v", s)
		}
	})
}

func TestLostWhileWaiting(t *testing.T) {
	whileWaiting(t, nil, func(f *fake, g *gated, w *worker.Worker) {
		f.steal(group(5))
		pass(10 * time.Millisecond) // a heartbeat
		g.open()
		pass(time.Second)
		if g.called(5) || !g.called(6) {
			t.Error("a handler was called without a lease")
		}
		if s := w.Stats(); s.LeasesLost != 1 || s.OutcomesLost != 1 || s.Completed != 209 {
			t.Errorf("%+v", s)
		}
	})
}

// A handler that ends its goroutine, or panics, leaves the slot to who waits.
func TestSlotOutlivesItsHandlers(t *testing.T) {
	whileWaiting(t, func(task *worker.Task) error {
		if task.Job.ID < group(3) {
			panic("no")
		}
		runtime.Goexit()
		return nil
	}, func(f *fake, g *gated, w *worker.Worker) {
		g.open()
		synctest.Wait()
		for i := 1; i <= 10; i++ {
			if !g.called(i) {
				t.Errorf("the handler of %s was not called", group(i))
			}
		}
		if s := w.Stats(); s.Running != 0 || s.Waiting != 0 || s.Retried != slotsUsed {
			t.Errorf("%+v", s)
		}
	})
}

// A job whose deadline passes while it waits becomes a dead letter.
func TestDeadlinePassesWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := &fake{wakes: make(chan core.Wake)}, &gated{}
		w := startGated(t, f, g, worker.Config{Prefetch: 2})
		f.addMany(200)
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		pass(2 * time.Second)
		g.shut()
		for i := range slotsUsed + 1 {
			f.add(group(i+1), &core.Job{ID: group(i + 1), Deadline: time.Now().Add(5 * time.Millisecond)})
		}
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		synctest.Wait()
		if s := w.Stats(); s.Running != slotsUsed || s.Waiting != 1 {
			t.Fatalf("%+v, want %d running and one waiting", s, slotsUsed)
		}
		pass(10 * time.Millisecond)
		g.open()
		pass(time.Second)
		if s := w.Stats(); g.called(slotsUsed+1) || s.Dead != 1 {
			t.Errorf("%+v", s)
		}
	})
}
