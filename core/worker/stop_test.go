package worker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

func TestStopBeforeStart(t *testing.T) {
	w := newWorker(t, &fake{}, worker.Config{Handler: nothing})
	stop(t, w)
	stop(t, w)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Start(context.Background()); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Start after Stop: %v", err)
	}
	if err := w.Run(context.Background()); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Run after Stop: %v", err)
	}
}

func TestStartTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &fake{}, worker.Config{Handler: nothing})
		if err := w.Start(t.Context()); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("second Start: %v", err)
		}
		stop(t, w)
	})
}

// took runs f and checks how long that takes in the bubble.
func took(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if took := time.Since(began); took != want {
		t.Errorf("it took %v, want %v", took, want)
	}
}

func TestStopAnIdleWorkerIsImmediate(t *testing.T) {
	for name, b := range map[string]func() *fake{
		"idle": func() *fake { return &fake{wakes: make(chan core.Wake)} },
		"claims fail": func() *fake {
			return &fake{onClaim: func(context.Context, core.ClaimRequest, func() core.ClaimResult) (core.ClaimResult, error) {
				return core.ClaimResult{}, core.ErrUnavailable
			}}
		},
		"a purge hangs": func() *fake {
			return &fake{onPurge: func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, b(), worker.Config{Handler: nothing})
				pass(80 * time.Second)
				took(t, 0, func() { stop(t, w) })
			})
		})
	}
}

func TestStopWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.addMany(30)
		w := start(t, f, worker.Config{Concurrency: 10, Lease: 3 * time.Second, Handler: handle(func(ctx context.Context, task *worker.Task) error {
			select {
			case <-task.Stopping():
			case <-ctx.Done():
			}
			time.Sleep(20 * time.Second)
			return context.Cause(ctx)
		})})
		pass(time.Second)
		took(t, 20*time.Second, func() { stop(t, w) })
		if s := w.Stats(); s.Claimed != 10 || s.Completed != 10 || f.held() != 0 {
			t.Errorf("%+v, %d leases held", s, f.held())
		}
	})
}

func TestStopEndsContextsAndGivesJobsBack(t *testing.T) {
	for name, tc := range map[string]struct {
		returns error
		want    core.Action
	}{
		"the context's error": {context.Canceled, core.Release},
		"any error":           {errBoom, core.Release},
		"completed":           {nil, core.Complete},
		"dead":                {worker.DeadLetter(errBoom), core.Dead},
		"snoozed":             {worker.Snooze(time.Hour), core.Snooze},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, h := &fake{}, &waits{returns: tc.returns}
				f.add("g", &core.Job{}, &core.Job{})
				w := start(t, f, worker.Config{Handler: h})
				pass(5 * time.Second)
				took(t, 30*time.Second, func() { stop(t, w) })
				h.check(t, worker.ErrStopping, 35*time.Second, 35*time.Second)
				if o := f.last(t); o.Action != tc.want || len(f.outcomes) != 1 {
					t.Errorf("settled with %v", f.actions())
				}
			})
		})
	}
}

func TestAPanicDuringStopIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.addMany(1)
		w := start(t, f, worker.Config{StopTimeout: core.None, Handler: handle(func(ctx context.Context, _ *worker.Task) error {
			<-ctx.Done()
			panic("no")
		})})
		synctest.Wait()
		took(t, 0, func() { stop(t, w) })
		if o := f.last(t); o.Action != core.Retry {
			t.Errorf("settled with %v", o.Action)
		}
	})
}

// A handler that never returns keeps its lease until that runs out: giving it back
// would let its group run twice. Should it return after all, nothing is written.
func TestStopDoesNotGiveBackWhatStillRuns(t *testing.T) {
	for name, late := range map[string]time.Duration{"returns within the lease": 5 * time.Second, "returns later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stopWithStuckHandler(t, late) })
		})
	}
}

func stopWithStuckHandler(t *testing.T, late time.Duration) {
	f := &fake{}
	f.add("stuck", &core.Job{}, &core.Job{})
	f.addMany(3)
	release := make(chan struct{})
	w := start(t, f, worker.Config{StopTimeout: 10 * time.Second, ReleaseTimeout: 2 * time.Second,
		Handler: handle(func(ctx context.Context, task *worker.Task) error {
			if task.Job.Group == "stuck" {
				<-release
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})})
	pass(time.Second)
	var err error
	took(t, 12*time.Second, func() { err = w.Stop(context.Background()) })
	var stopErr *worker.StopError
	if !errors.As(err, &stopErr) || *stopErr != (worker.StopError{Running: 1}) {
		t.Errorf("Stop: %v", err)
	}
	if again := w.Close(); again != err {
		t.Errorf("Close after that: %v", again)
	}
	if n := f.held(); n != 1 {
		t.Errorf("%d leases held, want that of the stuck handler", n)
	}
	time.AfterFunc(late, func() { close(release) })
	pass(30 * time.Second)
	if n := f.held(); n != 0 {
		t.Errorf("%d leases held: the heartbeats must have ended", n)
	}
	pass(late)
	if n := len(f.actions()); n != 3 {
		t.Errorf("settled %v: the late outcome must not be written", f.actions())
	}
	if s := w.Stats(); s.Running != 0 || s.Unsettled != 0 || s.OutcomesLost != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAClaimInFlightDuringStopStrandsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.onClaim = func(_ context.Context, _ core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error) {
			res := do()
			time.Sleep(2 * time.Second)
			return res, nil
		}
		f.addMany(5)
		w := start(t, f, worker.Config{Handler: nothing})
		pass(time.Second)
		took(t, time.Second, func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		if s := w.Stats(); s.Released != 5 || f.held() != 0 {
			t.Errorf("%+v, %d leases held", s, f.held())
		}
	})
}

func TestStopWithAHungStoreEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{onClaim: func(ctx context.Context, _ core.ClaimRequest, _ func() core.ClaimResult) (core.ClaimResult, error) {
			<-ctx.Done()
			return core.ClaimResult{}, ctx.Err()
		}}
		w := start(t, f, worker.Config{Handler: nothing, Lease: 10 * time.Minute, StopTimeout: 7 * time.Second})
		synctest.Wait()
		took(t, 12*time.Second, func() { stop(t, w) }) // StopTimeout and ReleaseTimeout
	})
}

func TestStopWaitsForTheStore(t *testing.T) {
	for name, tc := range map[string]struct {
		outage, takes time.Duration
		lost          int
	}{
		"that comes back in time": {outage: 20 * time.Second, takes: 20 * time.Second},
		"that does not":           {outage: time.Hour, takes: 35 * time.Second, lost: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				began := time.Now()
				f.onSettle = func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
					if time.Since(began) < tc.outage {
						return nil, core.ErrUnavailable
					}
					return do(), nil
				}
				f.addMany(4)
				w := start(t, f, worker.Config{Handler: nothing})
				synctest.Wait()
				err := w.Stop(context.Background())
				var stopErr *worker.StopError
				if errors.As(err, &stopErr) != (tc.lost > 0) || tc.lost > 0 && stopErr.Unsettled != tc.lost {
					t.Errorf("Stop: %v", err)
				}
				if took := time.Since(began); took < tc.takes || took > tc.takes+time.Second {
					t.Errorf("Stop took %v", took)
				}
				if s := w.Stats(); int(s.OutcomesLost) != tc.lost || s.Unsettled != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestStopsContextShortensTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := &fake{}, &waits{returns: errBoom}
		f.addMany(1)
		w := start(t, f, worker.Config{Handler: h, StopTimeout: core.Forever})
		synctest.Wait()
		var all sync.WaitGroup
		all.Go(func() { took(t, time.Minute, func() { stop(t, w) }) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		took(t, time.Minute, func() {
			if err := w.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		h.check(t, worker.ErrStopping, time.Minute, time.Minute)
	})
}

type valueKey struct{}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.addMany(1)
		var value atomic.Value
		w := newWorker(t, f, worker.Config{Handler: handle(func(ctx context.Context, _ *worker.Task) error {
			value.Store(ctx.Value(valueKey{}))
			time.Sleep(10 * time.Second)
			return ctx.Err()
		})})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "v"), time.Second)
		defer cancel()
		took(t, 10*time.Second, func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		if s := w.Stats(); s.Completed != 1 || value.Load() != "v" {
			t.Errorf("%+v, value %v", s, value.Load())
		}
		stop(t, w)
	})
}

func TestStopFromAHandlersGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.addMany(1)
		var w *worker.Worker
		w = newWorker(t, f, worker.Config{Handler: handle(func(context.Context, *worker.Task) error {
			go w.Stop(context.Background())
			return nil
		})})
		took(t, 0, func() {
			if err := w.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if got := f.actions(); !slices.Equal(got, []string{"complete:job1"}) {
			t.Error(got)
		}
	})
}
