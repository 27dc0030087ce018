package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// waits is a handler that runs until its context ends, and keeps what its first
// run saw.
type waits struct {
	started, ended time.Time
	cause          error
	returns        error
	runs           atomic.Int32
}

func (h *waits) Handle(ctx context.Context, _ *worker.Task) error {
	if h.runs.Add(1) > 1 {
		<-ctx.Done()
		return h.returns
	}
	h.started = time.Now()
	<-ctx.Done()
	h.ended, h.cause = time.Now(), context.Cause(ctx)
	return h.returns
}

func (h *waits) check(t *testing.T, cause error, min, max time.Duration) {
	t.Helper()
	if !errors.Is(h.cause, cause) {
		t.Errorf("the context ended with cause %v, want %v", h.cause, cause)
	}
	if ran := h.ended.Sub(h.started); ran < min || ran > max {
		t.Errorf("the context ended after %v, want %v to %v", ran, min, max)
	}
}

func expectLost(t *testing.T, f *fake, w *worker.Worker) {
	t.Helper()
	if a := f.actions(); len(a) != 0 {
		t.Errorf("a zombie's outcome was written: %v", a)
	}
	if s := w.Stats(); s.LeasesLost != 1 || s.OutcomesLost != 1 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

func unavailable[A, R any](context.Context, A, func() R) (r R, err error) {
	return r, core.ErrUnavailable
}

func hangs[A, R any](ctx context.Context, _ A, _ func() R) (r R, err error) {
	<-ctx.Done()
	return r, ctx.Err()
}

func TestHeartbeatsKeepALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{})
		w := start(t, f, worker.Config{Lease: 3 * time.Second, Handler: handle(func(ctx context.Context, task *worker.Task) error {
			time.Sleep(time.Hour)
			if left := time.Until(task.LeaseEnd()); left < time.Second {
				t.Errorf("only %v of the lease are left", left)
			}
			return ctx.Err()
		})})
		pass(time.Hour + time.Second)
		if s := w.Stats(); s.Completed != 1 || s.Claimed != 1 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

// All leases of a queue go into one call a beat.
func TestHeartbeatsAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		f := &fake{}
		f.onExtend = func(_ context.Context, l []core.LeaseRef, do func() []core.Extension) ([]core.Extension, error) {
			sizes = append(sizes, len(l))
			return do(), nil
		}
		f.addMany(50)
		w := start(t, f, worker.Config{Concurrency: 50, Handler: handle(func(context.Context, *worker.Task) error {
			time.Sleep(95 * time.Second)
			return nil
		})})
		pass(2 * time.Minute)
		stop(t, w)
		if len(sizes) < 9 || len(sizes) > 10 || slices.Min(sizes) != 50 {
			t.Errorf("calls of %v leases in 95 s", sizes)
		}
	})
}

func TestALeaseLostAtTheStoreCancelsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := &fake{}, &waits{}
		f.add("g", &core.Job{ID: "j"})
		var mu sync.Mutex
		var told []string
		tell := func(args ...any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(args...))
		}
		w := start(t, f, worker.Config{Handler: h, Observer: worker.Observer{
			Claimed:   func(_ string, n int, _ time.Duration) { tell("claimed ", n) },
			LeaseLost: func(j *core.Job) { tell("lost ", j.ID) },
			Settled: func(s worker.Settlement) {
				tell("settled ", s.Job.ID, " ", s.State, " ", s.Ran > 0, errors.Is(s.Err, core.ErrLeaseLost))
			},
		}, PollInterval: time.Hour})
		synctest.Wait()
		f.steal("g")
		pass(11 * time.Second)
		h.check(t, core.ErrLeaseLost, 0, 10*time.Second) // a heartbeat
		expectLost(t, f, w)
		slices.Sort(told)
		if got := strings.Join(told, ", "); got != "claimed 1, lost j, settled j unknown true true" {
			t.Errorf("told %q", got)
		}
		stop(t, w)
	})
}

func TestALeaseThatCanNotBeExtendedEndsByTheLocalClock(t *testing.T) {
	for name, fault := range map[string]func(context.Context, []core.LeaseRef, func() []core.Extension) ([]core.Extension, error){
		"fails": unavailable[[]core.LeaseRef, []core.Extension],
		"hangs": hangs[[]core.LeaseRef, []core.Extension],
		"answers nonsense": func(context.Context, []core.LeaseRef, func() []core.Extension) ([]core.Extension, error) {
			return nil, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, h := &fake{onExtend: fault}, &waits{}
				f.onClaim = func(ctx context.Context, req core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
					if h.runs.Load() > 0 {
						return core.ClaimResult{}, core.ErrUnavailable
					}
					time.Sleep(4 * time.Second) // the lease counts from before that
					return do(), nil
				}
				f.add("g", &core.Job{})
				w := start(t, f, worker.Config{Handler: h})
				pass(time.Minute)
				h.check(t, core.ErrLeaseLost, 26*time.Second, 26*time.Second)
				expectLost(t, f, w)
				stop(t, w)
			})
		})
	}
}

// In the moment of its end a lease is over, whoever comes first.
func TestAnOutcomeAtTheEndOfItsLeaseIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{onExtend: unavailable[[]core.LeaseRef, []core.Extension]}
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			if f.claimCount() > 1 {
				return core.ClaimResult{}, core.ErrUnavailable
			}
			return do(), nil
		}
		f.addMany(100)
		w := start(t, f, worker.Config{Concurrency: 100, Handler: handle(func(_ context.Context, task *worker.Task) error {
			time.Sleep(time.Until(task.LeaseEnd()))
			return nil
		})})
		pass(time.Minute)
		if s := w.Stats(); s.LeasesLost != 100 || s.OutcomesLost != 100 || len(f.actions()) != 0 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

func TestALostHeartbeatOrTwoDoNotLoseTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		f := &fake{}
		f.onExtend = func(_ context.Context, _ []core.LeaseRef, do func() []core.Extension) ([]core.Extension, error) {
			if n++; n%3 != 0 {
				return nil, core.ErrUnavailable
			}
			return do(), nil
		}
		f.add("g", &core.Job{})
		w := start(t, f, worker.Config{Handler: handle(func(ctx context.Context, _ *worker.Task) error {
			time.Sleep(time.Hour)
			return ctx.Err()
		})})
		pass(time.Hour + time.Second)
		if s := w.Stats(); s.Completed != 1 || s.LeasesLost != 0 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

func TestSavingUnderALostLeaseEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{})
		w := start(t, f, worker.Config{Handler: handle(func(ctx context.Context, task *worker.Task) error {
			f.steal("g")
			if err := task.SaveProgress(ctx, []byte("half")); !errors.Is(err, core.ErrLeaseLost) {
				t.Errorf("SaveProgress: %v", err)
			}
			if cause := context.Cause(ctx); cause != core.ErrLeaseLost {
				t.Errorf("cause %v", cause)
			}
			return nil
		})})
		synctest.Wait()
		expectLost(t, f, w)
		stop(t, w)
	})
}

func TestMaxHandlingLetsTheLeaseRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := &fake{}, &waits{}
		f.add("g", &core.Job{})
		w := start(t, f, worker.Config{Handler: h, MaxHandling: 5 * time.Minute})
		pass(5*time.Minute + 33*time.Second) // with a poll
		h.check(t, core.ErrLeaseLost, 5*time.Minute, 5*time.Minute+30*time.Second)
		if n := h.runs.Load(); n != 2 {
			t.Errorf("%d runs; the job should have been claimed again", n)
		}
		w.Close()
	})
}

func TestACancelledJobEndsTheContext(t *testing.T) {
	for name, tc := range map[string]struct {
		hint    bool
		returns error
		within  time.Duration
		want    core.Action
	}{
		"told by a heartbeat":        {false, context.Canceled, 10 * time.Second, core.Cancel},
		"told by a hint":             {true, errBoom, 0, core.Cancel},
		"completed nevertheless":     {true, nil, 0, core.Complete},
		"a dead letter nevertheless": {true, worker.DeadLetter(errBoom), 0, core.Dead},
		"a retry would be in vain":   {true, worker.RetryAfter(0, errBoom), 0, core.Cancel},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, h := &fake{wakes: make(chan core.Wake)}, &waits{returns: tc.returns}
				f.add("g", &core.Job{ID: "j"})
				w := start(t, f, worker.Config{Handler: h})
				synctest.Wait()
				f.cancel("j")
				if tc.hint {
					f.wakes <- core.Wake{Kind: core.WakeCancel, Queue: "q", JobID: "other"}
					f.wakes <- core.Wake{Kind: core.WakeCancel, Queue: "q", JobID: "j"}
					f.wakes <- core.Wake{Kind: core.WakeCancel, Queue: "q", JobID: "j"}
				}
				pass(11 * time.Second)
				h.check(t, core.ErrCancelled, 0, tc.within)
				if o := f.last(t); o.Action != tc.want || (o.Error == "") != (tc.returns == nil || tc.returns == context.Canceled) {
					t.Errorf("settled with %v %q", o.Action, o.Error)
				}
				stop(t, w)
			})
		})
	}
}

// A handler that does not care for its context must not meet the next run of its
// group in this process.
func TestAGroupNeverRunsTwiceInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		down := atomic.Bool{}
		f.onExtend = func(_ context.Context, _ []core.LeaseRef, do func() []core.Extension) ([]core.Extension, error) {
			if down.Load() {
				return nil, core.ErrUnavailable
			}
			return do(), nil
		}
		f.add("g", &core.Job{ID: "stubborn"})
		f.add("", &core.Job{ID: "alone"})
		var inside, runs atomic.Int32
		w := start(t, f, worker.Config{Concurrency: 3, Handler: handle(func(ctx context.Context, task *worker.Task) error {
			if task.Job.ID == "alone" {
				return nil
			}
			if inside.Add(1) > 1 {
				t.Error("two runs at once")
			}
			defer inside.Add(-1)
			if runs.Add(1) == 1 {
				time.Sleep(10 * time.Minute)
			}
			return nil
		})})
		down.Store(true)
		pass(5 * time.Minute)
		down.Store(false)
		if s := w.Stats(); s.LeasesLost != 1 || s.Running != 1 || s.Released < 100 || s.Released > 400 {
			t.Errorf("%+v", s)
		}
		pass(6 * time.Minute)
		if s := w.Stats(); s.Running != 0 || s.Completed != 2 || runs.Load() != 2 {
			t.Errorf("%+v, %d runs", s, runs.Load())
		}
		stop(t, w)
	})
}

func TestTimeoutAndDeadlineBoundTheHandler(t *testing.T) {
	for name, tc := range map[string]struct {
		timeout, deadline, def time.Duration
		ran                    time.Duration
		want                   core.Action
	}{
		"the job's timeout":                {timeout: time.Minute, def: time.Hour, ran: time.Minute, want: core.Retry},
		"the default timeout":              {def: time.Minute, ran: time.Minute, want: core.Retry},
		"the deadline":                     {timeout: time.Hour, deadline: 2 * time.Minute, ran: 2 * time.Minute, want: core.Dead},
		"the timeout before the deadline":  {timeout: time.Minute, deadline: 2 * time.Minute, ran: time.Minute, want: core.Retry},
		"a deadline that has passed: dead": {deadline: -time.Second, want: core.Dead},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, h := &fake{}, &waits{returns: context.DeadlineExceeded}
				f.add("", &core.Job{Timeout: tc.timeout, Deadline: time.Now().Add(tc.deadline)})
				if tc.deadline == 0 {
					f.lanes[0].jobs[0].Deadline = time.Time{}
				}
				w := start(t, f, worker.Config{Handler: h, Timeout: tc.def, Retry: worker.Constant(time.Hour)})
				pass(10 * time.Minute)
				if o := f.last(t); o.Action != tc.want || o.Error == "" {
					t.Errorf("settled with %v %q", o.Action, o.Error)
				}
				if tc.ran > 0 {
					h.check(t, context.DeadlineExceeded, tc.ran, tc.ran)
				} else if h.runs.Load() != 0 {
					t.Error("the handler was called")
				}
				stop(t, w)
			})
		})
	}
}

// The store's clock may be an hour off: only the time between its clock at the
// claim and the deadline counts.
func TestADeadlineIsTakenByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := &fake{}, &waits{returns: context.DeadlineExceeded}
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			res := do()
			for i := range res.Leases {
				res.Leases[i].Until = res.Leases[i].Until.Add(time.Hour)
			}
			return res, nil
		}
		f.add("", &core.Job{Deadline: time.Now().Add(time.Hour + time.Minute)})
		w := start(t, f, worker.Config{Handler: h})
		pass(10 * time.Minute)
		h.check(t, context.DeadlineExceeded, time.Minute, time.Minute)
		stop(t, w)
	})
}
