package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

func TestClaimsAskForTheFreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.addMany(100)
		var inside, most atomic.Int32
		w := start(t, f, worker.Config{Concurrency: 7, Handler: handle(func(context.Context, *worker.Task) error {
			most.Store(max(most.Load(), inside.Add(1)))
			time.Sleep(time.Second)
			inside.Add(-1)
			return nil
		})})
		synctest.Wait()
		f.mu.Lock()
		first := f.claims[0].Max
		f.mu.Unlock()
		if first != 7 || w.Stats().Running != 7 {
			t.Errorf("first claim for %d, %d running", first, w.Stats().Running)
		}
		pass(time.Minute)
		if s := w.Stats(); s.Completed != 100 || most.Load() != 7 {
			t.Errorf("%+v, %d at once", s, most.Load())
		}
		stop(t, w)
	})
}

func TestThousandsOfJobsOverFewSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		for i := range 5000 {
			f.add([]string{"", "a", "b", "c"}[i%4], &core.Job{})
		}
		w := start(t, f, worker.Config{Concurrency: 2, Handler: handle(func(_ context.Context, task *worker.Task) error {
			if task.Job.Seq%7 == 0 {
				time.Sleep(time.Millisecond)
			}
			return nil
		})})
		pass(time.Minute)
		stop(t, w)
		if s := w.Stats(); s.Completed != 5000 || s.Claimed != 5000 {
			t.Errorf("%+v", s)
		}
	})
}

// Polling is the truth: without any hint a new job starts within a poll interval.
func TestPollingAloneFindsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var ran atomic.Int32
		w := start(t, f, worker.Config{Handler: handle(func(context.Context, *worker.Task) error { ran.Add(1); return nil })})
		for i := range 20 {
			pass(10*time.Second + 77*time.Millisecond)
			f.addMany(1)
			pass(1250 * time.Millisecond)
			if int(ran.Load()) != i+1 {
				t.Errorf("job %d has not run after the poll interval", i)
			}
		}
		stop(t, w)
	})
}

func TestAnEmptyQueueIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		w := start(t, f, worker.Config{Handler: nothing})
		pass(100 * time.Second)
		if n := f.claimCount(); n < 80 || n > 134 {
			t.Errorf("%d claims in 100 s", n)
		}
		stop(t, w)
	})
}

func TestNextShortensTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		began := time.Now()
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			res := do()
			if age := time.Since(began); age < 100*time.Millisecond {
				res.Next = 100*time.Millisecond - age
			}
			return res, nil
		}
		f.addMany(1)
		f.lanes[0].dueAt = began.Add(100 * time.Millisecond)
		var at time.Duration
		w := start(t, f, worker.Config{PollInterval: time.Hour, Handler: handle(func(context.Context, *worker.Task) error {
			at = time.Since(began)
			return nil
		})})
		pass(time.Minute)
		if at != 100*time.Millisecond {
			t.Errorf("started after %v", at)
		}
		if n := f.claimCount(); n > 3 {
			t.Errorf("%d claims", n)
		}
		stop(t, w)
	})
}

func TestAHintBringsWorkAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wakes: make(chan core.Wake)}
		var ran atomic.Int32
		w := start(t, f, worker.Config{PollInterval: time.Hour, Handler: handle(func(context.Context, *worker.Task) error { ran.Add(1); return nil })})
		synctest.Wait()
		before := f.claimCount()
		f.addMany(1)
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "unknown"}
		synctest.Wait()
		if ran.Load() != 0 || f.claimCount() != before {
			t.Error("a hint for another queue led to a claim")
		}
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		synctest.Wait()
		if ran.Load() != 1 {
			t.Error("the hint did not lead to a claim")
		}
		stop(t, w)
	})
}

// A hint that comes while a claim is in flight is news to that claim.
func TestAHintDuringAClaimIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wakes: make(chan core.Wake)}
		var slow atomic.Bool
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			res := do()
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return res, nil
		}
		var ran atomic.Int32
		w := start(t, f, worker.Config{PollInterval: time.Hour, Handler: handle(func(context.Context, *worker.Task) error { ran.Add(1); return nil })})
		synctest.Wait()
		slow.Store(true)
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"} // finds nothing
		pass(500 * time.Millisecond)
		f.addMany(1)
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		pass(2 * time.Second)
		if ran.Load() != 1 {
			t.Error("the job has not run")
		}
		stop(t, w)
	})
}

// wakeless answers errors and closed channels to Wakes for a while.
type wakeless struct {
	*fake
	tries atomic.Int32
}

func (w *wakeless) Wakes(ctx context.Context, queues ...string) (<-chan core.Wake, error) {
	switch n := w.tries.Add(1); {
	case n <= 3:
		return nil, core.ErrUnavailable
	case n <= 6:
		c := make(chan core.Wake)
		close(c)
		return c, nil
	}
	return w.fake.Wakes(ctx, queues...)
}

func TestListeningIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &wakeless{fake: &fake{wakes: make(chan core.Wake)}}
		w := start(t, b, worker.Config{PollInterval: time.Hour, Handler: nothing})
		synctest.Wait()
		b.addMany(1) // nobody hears of it, so the worker looks as it begins to listen
		pass(time.Minute)
		if s := w.Stats(); s.Completed != 1 {
			t.Errorf("%+v", s)
		}
		if n := b.tries.Load(); n != 7 {
			t.Errorf("%d tries", n)
		}
		b.addMany(1)
		b.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		synctest.Wait()
		if s := w.Stats(); s.Completed != 2 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

func TestClaimErrorsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wakes: make(chan core.Wake)}
		var fail atomic.Value
		fail.Store(core.ErrUnavailable)
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			if err, _ := fail.Load().(error); err != errNone {
				return core.ClaimResult{}, err
			}
			return do(), nil
		}
		var logged bytes.Buffer
		w := start(t, f, worker.Config{Handler: nothing, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		for range 600 { // hints do not make it hot
			pass(100 * time.Millisecond)
			f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		}
		if n := f.claimCount(); n < 12 || n > 30 {
			t.Errorf("%d claims in a minute of trouble", n)
		}
		fail.Store(core.ErrMisconfigured)
		pass(time.Minute)
		fail.Store(errNone)
		f.addMany(1)
		pass(5 * time.Second)
		if s := w.Stats(); s.Completed != 1 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
		if n := strings.Count(logged.String(), "level="); n != 3 {
			t.Errorf("%d lines, want one for each of: unavailable, misconfigured, works again:\n%s", n, logged.String())
		}
	})
}

var errNone = core.ErrNotFound // stands for no error in an atomic.Value

func TestAPausedQueueIsNormal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wakes: make(chan core.Wake)}
		var paused atomic.Bool
		paused.Store(true)
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			if paused.Load() {
				return core.ClaimResult{}, core.ErrQueuePaused
			}
			return do(), nil
		}
		var logged bytes.Buffer
		f.addMany(1)
		w := start(t, f, worker.Config{Handler: nothing, Logger: slog.New(slog.NewTextHandler(&logged, nil)), HighRatio: 1, HighThreshold: 4})
		pass(100 * time.Second)
		if n := f.claimCount(); n < 80 || n > 134 {
			t.Errorf("%d claims in 100 s", n)
		}
		paused.Store(false)
		f.wakes <- core.Wake{Kind: core.WakeReady, Queue: "q"}
		synctest.Wait()
		if s := w.Stats(); s.Completed != 1 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
		if strings.Contains(logged.String(), "WARN") {
			t.Error(logged.String())
		}
	})
}

func TestHighRatioIsTheShareOfClaimsWithAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var floors, all, fallbacks int
		var mu sync.Mutex
		f.onClaim = func(_ context.Context, req core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if req.MinPriority == 3 {
				floors++
				if floors%2 == 0 { // one of two finds nothing above the floor
					fallbacks++
					return core.ClaimResult{}, nil
				}
			} else {
				all++
			}
			return do(), nil
		}
		const jobs = 4000
		f.addMany(jobs)
		w := start(t, f, worker.Config{Concurrency: 1, Prefetch: int(core.None), HighRatio: 0.25, HighThreshold: 3, PollInterval: time.Hour, Handler: nothing})
		pass(time.Second)
		if s := w.Stats(); s.Completed != jobs {
			t.Fatalf("%+v: a claim with a floor that found nothing must ask for all at once", s)
		}
		// floors is binomial(4000, 1/4): mean 1000, sigma 27. Each question brings one
		// job, but the last few.
		empty := floors - fallbacks + all - jobs
		if floors < 850 || floors > 1150 || empty < 0 || empty > 10 {
			t.Errorf("%d claims with a floor (%d found nothing), %d for all", floors, fallbacks, all)
		}
		stop(t, w)
	})
}

func TestPurgeWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var left, most, inside atomic.Int32
		left.Store(1200)
		f.onPurge = func(context.Context) (int, error) {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			n := min(left.Load(), 500)
			left.Add(-n)
			return int(n), nil
		}
		w := start(t, f, worker.Config{Handler: nothing})
		pass(76 * time.Second)
		if left.Load() != 0 || most.Load() != 1 {
			t.Errorf("%d left, %d at once", left.Load(), most.Load())
		}
		f.mu.Lock()
		before := f.purges
		f.mu.Unlock()
		pass(10 * time.Minute)
		if n := f.purges - before; n < 7 || n > 14 {
			t.Errorf("%d purges in 10 minutes of nothing to purge", n)
		}
		stop(t, w)
	})
}

func TestOneQueueIsHeldUpByNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.onClaim = func(_ context.Context, req core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			if req.Queue == "broken" {
				return core.ClaimResult{}, core.ErrUnavailable
			}
			return do(), nil
		}
		f.addMany(100)
		w := start(t, f, worker.Config{Concurrency: 1, Handler: nothing, Strict: true,
			Queues: []worker.Queue{{Name: "broken"}, {Name: "q"}}})
		synctest.Wait()
		if s := w.Stats(); s.Completed != 100 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}
