package worker_test

import (
	"context"
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

type settleFault = func(context.Context, []core.Outcome, func() []core.SettleResult) ([]core.SettleResult, error)

func TestSettleIsTriedAgain(t *testing.T) {
	for name, fault := range map[string]settleFault{
		"after an error":         unavailable[[]core.Outcome, []core.SettleResult],
		"after a call that hung": hangs[[]core.Outcome, []core.SettleResult],
		"after an answer too short": func(context.Context, []core.Outcome, func() []core.SettleResult) ([]core.SettleResult, error) {
			return nil, nil
		},
		"after a lost answer": func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			do()
			return nil, core.ErrUnavailable
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				var calls atomic.Int32
				f.onSettle = func(ctx context.Context, o []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
					if calls.Add(1) <= 3 {
						return fault(ctx, o, do)
					}
					return do(), nil
				}
				f.add("g", &core.Job{ID: "1"})
				w := start(t, f, worker.Config{Handler: nothing})
				pass(time.Minute)
				if got := f.actions(); !slices.Equal(got, []string{"complete:1"}) {
					t.Errorf("settled %v", got)
				}
				if s := w.Stats(); s.Completed != 1 || s.OutcomesLost != 0 || s.Unsettled != 0 || s.Claimed != 1 {
					t.Errorf("%+v", s)
				}
				stop(t, w)
			})
		})
	}
}

// With settle broken and the heartbeats working the lease is kept as long as it
// takes; with both broken the outcome is given up as the lease ends.
func TestAnOutcomeLivesAsLongAsItsLease(t *testing.T) {
	for name, heartbeats := range map[string]bool{"heartbeats work": true, "heartbeats fail": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				began := time.Now()
				f.onSettle = func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
					if time.Since(began) < 5*time.Minute {
						return nil, core.ErrUnavailable
					}
					return do(), nil
				}
				if !heartbeats {
					f.onExtend = unavailable
				}
				f.add("g", &core.Job{ID: "1"})
				var runs atomic.Int32
				w := start(t, f, worker.Config{Handler: handle(func(context.Context, *worker.Task) error {
					runs.Add(1)
					return nil
				})})
				pass(29 * time.Second)
				if s := w.Stats(); s.Unsettled != 1 || s.OutcomesLost != 0 {
					t.Errorf("%+v", s)
				}
				pass(3 * time.Second)
				if s := w.Stats(); (s.OutcomesLost == 1) != !heartbeats {
					t.Errorf("%+v", s)
				}
				pass(6 * time.Minute)
				if s := w.Stats(); s.Completed != 1 || heartbeats != (runs.Load() == 1) {
					t.Errorf("%+v after %d runs", s, runs.Load())
				}
				stop(t, w)
			})
		})
	}
}

func TestAStaleOutcomeIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{ID: "1"})
		var told []worker.Settlement
		w := start(t, f, worker.Config{
			Handler:  handle(func(context.Context, *worker.Task) error { f.steal("g"); return nil }),
			Observer: worker.Observer{Settled: func(s worker.Settlement) { told = append(told, s) }},
		})
		synctest.Wait()
		if s := w.Stats(); s.OutcomesLost != 1 || s.LeasesLost != 0 || s.Completed != 0 {
			t.Errorf("%+v", s)
		}
		if len(told) != 1 || told[0].Err != core.ErrLeaseLost || told[0].Action != core.Complete {
			t.Errorf("told %+v", told)
		}
		stop(t, w)
	})
}

// While a call is in flight, outcomes gather and go out together after it.
func TestOutcomesGatherWhileACallIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var mu sync.Mutex
		var sizes []int
		f.onSettle = func(_ context.Context, o []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			mu.Lock()
			sizes = append(sizes, len(o))
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return do(), nil
		}
		f.addMany(20)
		var n atomic.Int64
		w := start(t, f, worker.Config{Concurrency: 20, Handler: handle(func(context.Context, *worker.Task) error {
			time.Sleep(time.Duration(n.Add(1)) * time.Millisecond)
			return nil
		})})
		pass(time.Second)
		// The first goes at 1 ms, those of 2 to 11 ms at 11 ms, the rest at 21 ms.
		if len(sizes) != 3 || sizes[0] != 1 || sizes[1]+sizes[2] != 19 {
			t.Errorf("calls of %v outcomes", sizes)
		}
		stop(t, w)
	})
}

// A settle that takes 10 s, of a locked row, say, holds up neither the start nor
// the settling of other groups' jobs.
func TestASlowSettleDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.onSettle = func(_ context.Context, o []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			if slices.ContainsFunc(o, func(o core.Outcome) bool { return o.Lease.Group == "slow" }) {
				time.Sleep(10 * time.Second)
			}
			return do(), nil
		}
		f.add("slow", &core.Job{})
		for range 50 {
			f.add("quick", &core.Job{})
		}
		began := time.Now()
		var quick, last atomic.Int64
		w := start(t, f, worker.Config{Concurrency: 2, PollInterval: 5 * time.Millisecond,
			Handler: handle(func(_ context.Context, task *worker.Task) error {
				if task.Job.Group == "quick" {
					time.Sleep(time.Millisecond) // so that the slow one goes first
					quick.Add(1)
					last.Store(int64(time.Since(began)))
				}
				return nil
			})})
		pass(9 * time.Second)
		if n, took := quick.Load(), time.Duration(last.Load()); n != 50 || took > 500*time.Millisecond {
			t.Errorf("%d jobs of the quick group ran, the last after %v", n, took)
		}
		stop(t, w)
	})
}

// A group is free in the moment its job has been settled, not at the next poll.
func TestAGroupGoesOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.onSettle = func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			time.Sleep(time.Millisecond)
			return do(), nil
		}
		const jobs, groups = 100, 10
		for i := range jobs * groups {
			f.add(strings.Repeat("g", i%groups+1), &core.Job{})
		}
		var mu sync.Mutex
		began := time.Now()
		var end time.Duration
		w := start(t, f, worker.Config{Concurrency: 32, PollInterval: time.Hour, Handler: handle(func(context.Context, *worker.Task) error {
			mu.Lock()
			defer mu.Unlock()
			end = time.Since(began)
			return nil
		})})
		pass(time.Minute)
		if s := w.Stats(); s.Completed != jobs*groups {
			t.Errorf("%+v", s)
		}
		if per := end / jobs; per > 3*time.Millisecond {
			t.Errorf("%v from one job of a group to the next", per)
		}
		stop(t, w)
	})
}

// Outcomes that can not be written must not pile up without a bound.
func TestClaimsStopWhenOutcomesPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var works atomic.Bool
		f.onSettle = func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			if works.Load() {
				return do(), nil
			}
			return nil, core.ErrUnavailable
		}
		f.addMany(3000)
		w := start(t, f, worker.Config{Concurrency: 10, Handler: nothing})
		pass(20 * time.Second)
		if s := w.Stats(); s.Unsettled != 1000 || s.Claimed != 1000 {
			t.Errorf("%+v", s)
		}
		works.Store(true)
		pass(time.Minute)
		if s := w.Stats(); s.Completed != 3000 || s.OutcomesLost != 0 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

// During an outage one sender tries for all, however many calls were in flight as
// it began.
func TestOneSenderTriesDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var outage, slow atomic.Bool
		outage.Store(true)
		slow.Store(true)
		var calls, inside, most atomic.Int32
		f.onSettle = func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			calls.Add(1)
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			if !outage.Load() {
				return do(), nil
			}
			if slow.Load() {
				time.Sleep(200 * time.Millisecond)
			}
			return nil, core.ErrUnavailable
		}
		f.addMany(300) // more than a hundred of them return in the second part
		var n atomic.Int64
		w := start(t, f, worker.Config{Concurrency: 300, Handler: handle(func(context.Context, *worker.Task) error {
			time.Sleep(time.Duration(n.Add(1)) * 50 * time.Millisecond)
			return nil
		})})
		pass(5 * time.Second)
		if most.Load() != 4 {
			t.Errorf("%d calls at once as the outage began, want 4", most.Load())
		}
		slow.Store(false)
		pass(time.Second)
		calls.Store(0)
		most.Store(0)
		pass(15 * time.Second)
		if most.Load() != 1 || calls.Load() < 14 || calls.Load() > 31 {
			t.Errorf("%d calls in 15 s, %d at once", calls.Load(), most.Load())
		}
		outage.Store(false)
		pass(3 * time.Second)
		if s := w.Stats(); s.Completed != 300 || s.OutcomesLost != 0 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

// A slot does not wait for the outcome to be written.
func TestASlotIsFreeAsSoonAsItsHandlerHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.onSettle = func(_ context.Context, _ []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error) {
			time.Sleep(time.Second)
			return do(), nil
		}
		f.addMany(100)
		var ran atomic.Int32
		w := start(t, f, worker.Config{Concurrency: 1, Handler: handle(func(context.Context, *worker.Task) error {
			time.Sleep(time.Millisecond)
			ran.Add(1)
			return nil
		})})
		pass(100 * time.Millisecond)
		if ran.Load() != 100 {
			t.Errorf("%d of 100 handlers have run", ran.Load())
		}
		stop(t, w)
	})
}
