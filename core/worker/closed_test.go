package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// run runs a worker and gives what Run answers, which must be there by the end of
// within.
func run(t *testing.T, ctx context.Context, w *worker.Worker, within time.Duration, meanwhile func()) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	meanwhile()
	pass(within)
	select {
	case err := <-ended:
		return err
	default:
		t.Error("Run has not returned")
		_ = w.Close()
		return <-ended
	}
}

func TestRunOnAClosedBackend(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		_ = store.Close()
		w := newWorker(t, store, worker.Config{Handler: nothing})
		if err := run(t, t.Context(), w, time.Second, func() {}); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
		if err := w.Stop(t.Context()); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Stop after that: %v", err)
		}
	})
}

func TestTheBackendIsClosedUnderAnIdleWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		w := newWorker(t, store, worker.Config{Handler: nothing, PollInterval: time.Hour})
		err := run(t, t.Context(), w, time.Second, func() {
			pass(time.Minute)
			_ = store.Close()
		})
		var stopErr *worker.StopError
		if !errors.Is(err, core.ErrClosed) || errors.As(err, &stopErr) {
			t.Errorf("Run: %v", err)
		}
	})
}

// Nothing can be written any more, so the handlers' contexts end at once, and the
// error tells what was lost.
func TestTheBackendIsClosedUnderAHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		w := newWorker(t, store, worker.Config{Handler: handle(func(ctx context.Context, _ *worker.Task) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})})
		add(t, store, core.NewJob{})
		err := run(t, t.Context(), w, time.Second, func() {
			pass(time.Second)
			_ = store.Close()
		})
		var stopErr *worker.StopError
		if !errors.Is(err, core.ErrClosed) || !errors.As(err, &stopErr) || *stopErr != (worker.StopError{Unsettled: 1}) {
			t.Errorf("Run: %v", err)
		}
		if s := w.Stats(); s.OutcomesLost != 1 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestTheBackendIsClosedUnderAStuckHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		w := newWorker(t, store, worker.Config{Handler: handle(func(context.Context, *worker.Task) error {
			time.Sleep(time.Minute)
			return nil
		})})
		add(t, store, core.NewJob{})
		err := run(t, t.Context(), w, worker.DefaultReleaseTimeout+time.Second, func() {
			pass(time.Second)
			_ = store.Close()
		})
		var stopErr *worker.StopError
		if !errors.Is(err, core.ErrClosed) || !errors.As(err, &stopErr) || *stopErr != (worker.StopError{Running: 1}) {
			t.Errorf("Run: %v", err)
		}
		pass(2 * time.Minute)
		if s := w.Stats(); s.OutcomesLost != 1 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A program that ends its worker and then its backend does nothing wrong, even if
// it does not wait in between.
func TestTheBackendIsClosedAsTheWorkerStops(t *testing.T) {
	inBubble(t, func(t *testing.T, store *memory.Backend) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorker(t, store, worker.Config{Handler: nothing})
		if err := run(t, ctx, w, time.Second, func() {
			cancel()
			_ = store.Close()
		}); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Each call of the backend may be the one that finds it closed.
func TestEveryCallFindsTheBackendClosed(t *testing.T) {
	for name, f := range map[string]*fake{
		"claim": {onClaim: func(context.Context, core.ClaimRequest, func() core.ClaimResult) (core.ClaimResult, error) {
			return core.ClaimResult{}, core.ErrClosed
		}},
		"extend": {onExtend: func(context.Context, []core.LeaseRef, func() []core.Extension) ([]core.Extension, error) {
			return nil, core.ErrClosed
		}},
		"settle": {onSettle: func(context.Context, []core.Outcome, func() []core.SettleResult) ([]core.SettleResult, error) {
			return nil, core.ErrClosed
		}},
		"purge": {onPurge: func(context.Context) (int, error) { return 0, core.ErrClosed }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f.addMany(1)
				w := newWorker(t, f, worker.Config{Handler: handle(func(ctx context.Context, _ *worker.Task) error {
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Second):
					}
					return nil
				})})
				if err := run(t, t.Context(), w, 2*time.Minute, func() {}); !errors.Is(err, core.ErrClosed) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
