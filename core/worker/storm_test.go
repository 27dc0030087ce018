package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// shaky is a store behind a bad line: calls take time, and some fail before or
// after they have done their work.
type shaky struct{ core.Backend }

var errLine = fmt.Errorf("bad line: %w", core.ErrUnavailable)

func shake[T any](call func() (T, error)) (T, error) {
	var none T
	time.Sleep(rand.N(3 * time.Millisecond))
	if rand.N(20) == 0 {
		return none, errLine
	}
	res, err := call()
	if rand.N(20) == 0 {
		return none, errLine
	}
	return res, err
}

func (s shaky) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	return shake(func() (core.ClaimResult, error) { return s.Backend.Claim(ctx, req) })
}

func (s shaky) Settle(ctx context.Context, q string, o []core.Outcome) ([]core.SettleResult, error) {
	return shake(func() ([]core.SettleResult, error) { return s.Backend.Settle(ctx, q, o) })
}

func (s shaky) Extend(ctx context.Context, q string, l []core.LeaseRef, d time.Duration) ([]core.Extension, error) {
	return shake(func() ([]core.Extension, error) { return s.Backend.Extend(ctx, q, l, d) })
}

// ledger checks what the handlers see: no two runs of a group at once, and no job
// before those published before it in its group have ended.
type ledger struct {
	t      *testing.T
	mu     sync.Mutex
	inside map[string]string // group -> job
	next   map[string]int    // group -> the number of the job that may run
	runs   int
	ended  int
}

// enter notes the start of a run of job number n of its group. What it gives is to
// be called at the end, with whether the job should have ended by that.
func (l *ledger) enter(group string, n int) func(ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs++
	name := fmt.Sprint(group, "/", n)
	if other, busy := l.inside[group]; busy {
		l.t.Errorf("%s starts while %s runs", name, other)
	}
	l.inside[group] = name
	// A job may run again after its outcome was lost, but none may be passed over.
	if n > l.next[group] {
		l.t.Errorf("%s starts before number %d has ended", name, l.next[group])
	}
	return func(ended bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.inside, group)
		if ended && n == l.next[group] {
			l.next[group]++
			l.ended++
		}
	}
}

// handle is the handler of the storm: it fails in every way there is.
func (l *ledger) handle(ctx context.Context, task *worker.Task) (err error) {
	var n int
	if _, err := fmt.Sscan(string(task.Job.Payload), &n); err != nil {
		return worker.DeadLetter(err)
	}
	leave := l.enter(task.Job.Group, n)
	done := false
	defer func() { leave(done && context.Cause(ctx) != core.ErrLeaseLost) }()
	work := time.NewTimer(rand.N(40 * time.Millisecond))
	defer work.Stop()
	select {
	case <-work.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch rand.N(12) {
	case 0:
		return errBoom
	case 1:
		panic("storm")
	case 2:
		runtime.Goexit()
	case 3:
		return worker.Release()
	case 4:
		return worker.Snooze(rand.N(50 * time.Millisecond))
	case 5:
		return worker.RetryAfter(0, errBoom)
	case 6:
		work.Reset(500 * time.Millisecond) // more than a lease
		select {
		case <-work.C:
		case <-ctx.Done():
		}
	}
	done = true
	if rand.N(10) == 0 {
		return worker.DeadLetter(errBoom)
	}
	return nil
}

// TestStorm runs many jobs over a shaky line through workers that come and go.
func TestStorm(t *testing.T) {
	const groups, perGroup, workers = 20, 40, 3
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		l := &ledger{t: t, inside: map[string]string{}, next: map[string]int{}}
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for range workers {
			all.Go(func() { comeAndGo(ctx, t, shaky{store}, l.handle) })
		}
		for n := range perGroup {
			for g := range groups {
				add(t, store, core.NewJob{Group: fmt.Sprint("g", g), MaxAttempts: core.Unlimited, Payload: fmt.Append(nil, n)})
			}
			time.Sleep(rand.N(50 * time.Millisecond))
		}
		for {
			info, err := store.QueueInfo(ctx, "q")
			if err != nil {
				t.Fatal(err)
			}
			open := info.Jobs[core.StatePending] + info.Jobs[core.StateRunning] + info.Jobs[core.StateRetrying] + info.Jobs[core.StateScheduled]
			if open == 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		all.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ended != groups*perGroup || len(l.inside) != 0 {
			t.Errorf("%d jobs ended in the eyes of the handlers, want %d; %d still run", l.ended, groups*perGroup, len(l.inside))
		}
		t.Logf("%d runs for %d jobs", l.runs, l.ended)
	})
}

// comeAndGo starts and stops workers until ctx ends.
func comeAndGo(ctx context.Context, t *testing.T, b worker.Backend, h handle) {
	for ctx.Err() == nil {
		w := newWorker(t, b, worker.Config{
			Concurrency: 1 + rand.N(8), Lease: 300 * time.Millisecond, PollInterval: 20 * time.Millisecond,
			StopTimeout: 1 + rand.N(30*time.Millisecond), ReleaseTimeout: 20 * time.Second,
			Handler: h, Retry: worker.Exponential(0, 20*time.Millisecond),
		})
		run, cancel := context.WithTimeout(ctx, rand.N(2*time.Second))
		err := w.Run(run)
		cancel()
		var stopErr *worker.StopError
		if errors.As(err, &stopErr) && stopErr.Running > 0 {
			t.Error(err)
		}
		if s := w.Stats(); s.Running != 0 || s.Unsettled != 0 {
			t.Errorf("after its end: %+v", s)
		}
	}
}

// TestStormInRealTime is a smaller storm without a bubble, for the race detector
// and the real scheduler.
func TestStormInRealTime(t *testing.T) {
	store := memory.New(memory.Options{})
	defer store.Close()
	var mu sync.Mutex
	inside := map[string]bool{}
	const jobs = 20_000
	publish(t, store, jobs, 50)
	w := start(t, store, worker.Config{Concurrency: 16, Retry: worker.Constant(0), Handler: handle(func(_ context.Context, task *worker.Task) error {
		mu.Lock()
		if inside[task.Job.Group] {
			t.Error("two runs of a group at once")
		}
		inside[task.Job.Group] = true
		mu.Unlock()
		runtime.Gosched()
		mu.Lock()
		delete(inside, task.Job.Group)
		mu.Unlock()
		if rand.N(20) == 0 {
			return errBoom
		}
		return nil
	})})
	deadline := time.Now().Add(time.Minute)
	for w.Stats().Completed < jobs && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stop(t, w)
	if s := w.Stats(); s.Completed != jobs || s.OutcomesLost != 0 {
		t.Errorf("%+v", s)
	}
}
