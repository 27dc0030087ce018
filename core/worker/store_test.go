package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// inBubble runs a test with a memory store in a bubble.
func inBubble(t *testing.T, f func(t *testing.T, store *memory.Backend)) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		f(t, store)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func add(t testing.TB, store core.Producer, jobs ...core.NewJob) {
	t.Helper()
	for i := range jobs {
		if jobs[i].Queue == "" {
			jobs[i].Queue = "q"
		}
	}
	results, err := store.Publish(context.Background(), core.PublishRequest{Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

func job(t testing.TB, store core.Inspector, id string) *core.Job {
	t.Helper()
	j, err := store.Job(context.Background(), "q", id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// keep makes the store keep completed jobs.
func keep(t testing.TB, store core.Administrator, cfg core.QueueConfig) {
	t.Helper()
	cfg.CompletedRetention = time.Hour
	if err := store.Configure(context.Background(), "q", cfg); err != nil {
		t.Fatal(err)
	}
}

func TestAPublishStartsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		var ran atomic.Int32
		w := start(t, store, worker.Config{PollInterval: time.Hour, Handler: handle(func(context.Context, *worker.Task) error {
			ran.Add(1)
			return nil
		})})
		for i := range 50 {
			pass(time.Minute)
			add(t, store, core.NewJob{Group: []string{"", "g"}[i%2]})
			if synctest.Wait(); int(ran.Load()) != i+1 {
				t.Fatalf("publish %d did not start at once", i)
			}
		}
		stop(t, w)
	})
}

func TestADelayedJobStartsWhenDue(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		began := time.Now()
		var after []time.Duration
		w := start(t, store, worker.Config{PollInterval: time.Hour, Retry: worker.Constant(7 * time.Second),
			Handler: handle(func(_ context.Context, task *worker.Task) error {
				after = append(after, time.Since(began).Round(10*time.Millisecond))
				switch len(after) {
				case 1:
					return errBoom
				case 2:
					return worker.Snooze(20 * time.Second)
				}
				return nil
			})})
		add(t, store, core.NewJob{Group: "g", Delay: 3 * time.Second})
		pass(time.Minute)
		if want := []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}; !slices.Equal(after, want) {
			t.Errorf("ran after %v, want %v", after, want)
		}
		stop(t, w)
	})
}

func TestCancelOfARunningJob(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		h := &waits{returns: context.Canceled}
		w := start(t, store, worker.Config{Handler: h})
		add(t, store, core.NewJob{ID: "j", Group: "g"})
		pass(time.Second)
		if _, err := store.Move(t.Context(), core.MoveRequest{Queue: "q", To: core.StateCancelled, IDs: []string{"j"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.check(t, core.ErrCancelled, time.Second, time.Second)
		if j := job(t, store, "j"); j.State != core.StateCancelled || len(j.Failures) != 0 {
			t.Errorf("the job is %v with %v", j.State, j.Failures)
		}
		stop(t, w)
	})
}

func TestExhaustedJobsAreDead(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		var last atomic.Int32
		w := start(t, store, worker.Config{Retry: worker.Constant(time.Second), Handler: handle(func(_ context.Context, task *worker.Task) error {
			if task.LastAttempt() {
				last.Add(1)
				panic("at last")
			}
			return errBoom
		})})
		add(t, store, core.NewJob{ID: "j", Group: "g", MaxAttempts: 3})
		pass(time.Minute)
		j := job(t, store, "j")
		if j.State != core.StateDead || len(j.Failures) != 3 || last.Load() != 1 || j.Failures[0].Error != "boom" ||
			j.Failures[2].Error != "panic: at last" || j.Failures[2].Trace == "" {
			t.Errorf("%+v", j)
		}
		stop(t, w)
	})
}

func TestAQueueThatIsPausedAndResumed(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		keep(t, store, core.QueueConfig{})
		w := start(t, store, worker.Config{PollInterval: time.Minute, Handler: nothing})
		if _, err := store.PauseQueue(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		add(t, store, core.NewJob{}, core.NewJob{})
		pass(time.Hour)
		if s := w.Stats(); s.Claimed != 0 {
			t.Errorf("%+v", s)
		}
		if _, err := store.ResumeQueue(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		if s := w.Stats(); s.Completed != 2 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

// Jobs given back by a stop have spent no attempt, and the next worker starts them
// at once.
func TestStopGivesJobsBackUnspent(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		w := start(t, store, worker.Config{Handler: &waits{returns: context.Canceled}, StopTimeout: core.None, Concurrency: 20})
		for i := range 20 {
			add(t, store, core.NewJob{ID: fmt.Sprint(i), Group: fmt.Sprint("g", i%5)})
		}
		pass(time.Second)
		took(t, 0, func() { stop(t, w) })
		for i := range 20 {
			if j := job(t, store, fmt.Sprint(i)); j.State != core.StatePending || j.Attempt != 0 || len(j.Failures) != 0 {
				t.Errorf("job %d is %v after %d attempts", i, j.State, j.Attempt)
			}
		}
		second := start(t, store, worker.Config{Handler: nothing, PollInterval: time.Hour})
		synctest.Wait()
		if s := second.Stats(); s.Completed != 20 {
			t.Errorf("%+v", s)
		}
		stop(t, second)
	})
}

// cut is a store that a worker can not reach for a while.
type cut struct {
	core.Backend
	off atomic.Bool
}

func (c *cut) check() error {
	if c.off.Load() {
		return core.ErrUnavailable
	}
	return nil
}

func (c *cut) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	if err := c.check(); err != nil {
		return core.ClaimResult{}, err
	}
	return c.Backend.Claim(ctx, req)
}

func (c *cut) Settle(ctx context.Context, q string, o []core.Outcome) ([]core.SettleResult, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.Backend.Settle(ctx, q, o)
}

func (c *cut) Extend(ctx context.Context, q string, l []core.LeaseRef, d time.Duration) ([]core.Extension, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.Backend.Extend(ctx, q, l, d)
}

// A worker that is cut off ends its handlers before another one takes over, and
// writes nothing when it is back.
func TestAWorkerThatIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		keep(t, store, core.QueueConfig{})
		line := &cut{Backend: store}
		h := &waits{}
		first := start(t, line, worker.Config{Handler: h, Owner: "first"})
		add(t, store, core.NewJob{ID: "j", Group: "g"})
		pass(time.Minute)
		line.off.Store(true)
		var at time.Time
		second := start(t, store, worker.Config{Owner: "second", Handler: handle(func(context.Context, *worker.Task) error {
			at = time.Now()
			return nil
		})})
		pass(time.Minute)
		line.off.Store(false)
		pass(time.Minute)
		h.check(t, core.ErrLeaseLost, 80*time.Second, 90*time.Second) // a lease after the last heartbeat
		if gap := at.Sub(h.ended); gap < -time.Millisecond || gap > 1300*time.Millisecond {
			t.Errorf("the second worker started %v after the first had ended", gap)
		}
		j := job(t, store, "j")
		if j.State != core.StateCompleted || j.Attempt != 2 || len(j.Failures) != 1 || j.Failures[0].Worker != "first" {
			t.Errorf("%+v", j)
		}
		stop(t, first)
		stop(t, second)
	})
}

// share runs a worker with two slots over the backlogs of queues a, b and c, and
// counts whose jobs were among the first n. A slot becomes free while a claim for
// the other is in flight.
func share(t *testing.T, cfg worker.Config, n int) map[string]int {
	counts := map[string]int{}
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		for _, q := range []string{"a", "b", "c"} {
			for range n {
				add(t, store, core.NewJob{Queue: q})
			}
		}
		var mu sync.Mutex
		total := 0
		cfg.Concurrency = 2
		cfg.Handler = handle(func(_ context.Context, task *worker.Task) error {
			time.Sleep(1500 * time.Microsecond)
			mu.Lock()
			defer mu.Unlock()
			if total++; total <= n {
				counts[task.Job.Queue]++
			}
			return nil
		})
		w := start(t, &remote{Backend: store, trip: time.Millisecond}, cfg)
		pass(time.Minute)
		if s := w.Stats(); s.Completed != uint64(3*n) {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
	return counts
}

func TestQueuesAreServedByWeight(t *testing.T) {
	got := share(t, worker.Config{Queues: []worker.Queue{{Name: "a", Weight: 6}, {Name: "b", Weight: 3}, {Name: "c"}}}, 2000)
	// Of 2000 claims for one slot each; sigma is 22, 20 and 13 jobs, or up to 1.4
	// times that if claims are for both.
	for q, want := range map[string]int{"a": 1200, "b": 600, "c": 200} {
		if d := got[q] - want; d < -180 || d > 180 {
			t.Errorf("%d jobs of queue %s, want about %d", got[q], q, want)
		}
	}
}

func TestStrictQueuesAreServedInOrder(t *testing.T) {
	got := share(t, worker.Config{Strict: true, Queues: []worker.Queue{{Name: "b"}, {Name: "c", Weight: 9}, {Name: "a", Weight: 99}}}, 500)
	if got["b"] < 499 { // the last two may end together
		t.Errorf("%v", got)
	}
}

func TestHighGroupsGoFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		var mu sync.Mutex
		var order []int
		w := newWorker(t, store, worker.Config{Concurrency: 4, HighRatio: 1, HighThreshold: 3, Handler: handle(func(_ context.Context, task *worker.Task) error {
			mu.Lock()
			order = append(order, task.Job.Priority)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			return nil
		})})
		for i := range 400 {
			add(t, store, core.NewJob{Priority: []int{0, 0, 0, 4}[i%4]})
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		stop(t, w)
		if len(order) != 400 || slices.Contains(order[:100], 0) {
			t.Errorf("%d jobs, the first by priority %v", len(order), order[:min(len(order), 100)])
		}
	})
}

// Real time: what a bubble can not tell.
func TestLatencyOnAnIdleWorker(t *testing.T) {
	store := memory.New(memory.Options{})
	defer store.Close()
	started := make(chan time.Time, 1)
	w := start(t, store, worker.Config{Handler: handle(func(context.Context, *worker.Task) error {
		started <- time.Now()
		return nil
	})})
	var all []time.Duration
	for range 101 {
		time.Sleep(time.Millisecond)
		sent := time.Now()
		add(t, store, core.NewJob{})
		all = append(all, (<-started).Sub(sent))
	}
	slices.Sort(all)
	if median := all[50]; median > 10*time.Millisecond {
		t.Errorf("median %v from publish to start", median)
	}
	stop(t, w)
}

// A handler that outlives its lease costs its group a pause and an attempt, not
// the order of its jobs, whatever the failure policy.
func TestAnOverdueHandlerKeepsTheOrder(t *testing.T) {
	for name, policy := range map[string]core.FailurePolicy{"block": core.Block, "skip": core.Skip} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, store *memory.Backend) {
				var mu sync.Mutex
				var order []string
				first := true
				w := newWorker(t, store, worker.Config{
					Concurrency: 4, Lease: time.Second, MaxHandling: 100 * time.Millisecond, PollInterval: time.Second,
					Handler: handle(func(_ context.Context, task *worker.Task) error {
						mu.Lock()
						order = append(order, task.Job.ID)
						slow := first
						first = false
						mu.Unlock()
						if slow {
							time.Sleep(10 * time.Second)
						}
						return nil
					}),
				})
				want := []string{"j00"}
				for i := range 50 {
					id := fmt.Sprintf("j%02d", i)
					add(t, store, core.NewJob{Group: "g", ID: id, OnFailure: policy})
					want = append(want, id)
				}
				if err := w.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				stop(t, w)
				if !slices.Equal(order, want) {
					t.Errorf("order %v", order)
				}
			})
		})
	}
}

// A stream of groups of the highest priority starves no other one (P6), unless
// HighRatio says that every claim is theirs.
func TestNoPriorityStarves(t *testing.T) {
	for name, c := range map[string]struct {
		ratio  float64
		served bool
	}{"by default": {0, true}, "without priorities": {-1, true}, "highest always first": {1, false}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, store *memory.Backend) {
				var low atomic.Bool
				w := newWorker(t, store, worker.Config{Concurrency: 1, HighRatio: c.ratio, Handler: handle(func(_ context.Context, task *worker.Task) error {
					if task.Job.Priority == 0 {
						low.Store(true)
						return nil
					}
					time.Sleep(10 * time.Millisecond)
					return worker.Release() // there is always more of them
				})})
				for i := range 5 {
					add(t, store, core.NewJob{Group: fmt.Sprint("high", i), Priority: 4})
				}
				add(t, store, core.NewJob{Group: "low"})
				if err := w.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Second)
				if low.Load() != c.served {
					t.Errorf("the job of priority 0 was served: %v", low.Load())
				}
				stop(t, w)
			})
		})
	}
}
