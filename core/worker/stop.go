package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// StopError is what Stop answers when not everything came to an end in time. The
// leases of the jobs it counts are not given back but left to run out, so that no
// other worker starts a job of a group whose handler may still run here.
type StopError struct {
	Running   int // handlers that have not returned
	Unsettled int // outcomes that could not be written
}

func (e *StopError) Error() string {
	return fmt.Sprintf("worker: stopped with %d handlers still running and %d outcomes not written; their leases are left to run out",
		e.Running, e.Unsettled)
}

// Stop stops the worker and waits until it has stopped: no more claims; running
// handlers may go on for StopTimeout, or until ctx ends if that is sooner; then
// their contexts end with cause [ErrStopping], and jobs that return an error after
// that are given back; after ReleaseTimeout more it is over. Stop answers nil, or
// a [*StopError], or an error that matches [core.ErrClosed] (and may wrap a
// StopError too) when the worker had stopped by itself as its backend was closed.
// Every call of Stop and Close waits and answers the same. Before Start it answers
// nil, and the worker can not be started any more.
//
// A handler that calls Stop waits for itself: let it start a goroutine for that.
func (w *Worker) Stop(ctx context.Context) error {
	w.beginStop()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	w.mu.Lock()
	w.hurryUp()
	w.mu.Unlock()
	<-w.done
	return w.err
}

// hurryUp makes the handlers' contexts end at once. Called with the lock.
func (w *Worker) hurryUp() {
	if !isClosed(w.hurry) {
		close(w.hurry)
	}
}

// Done is closed when the worker has stopped, for whatever reason; Stop then
// answers at once, and tells it.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Close is Stop without StopTimeout: the handlers' contexts end at once.
func (w *Worker) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return w.Stop(ctx)
}

// beginStop is the start of the end, and all of it when the worker never started.
func (w *Worker) beginStop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isStopping() {
		return
	}
	close(w.stopping)
	if !w.started {
		close(w.done)
	}
}

// backendClosed reports whether err, an answer of the backend, says that it is
// closed. Then the worker stops: nothing will ever work again. A worker that was to
// stop anyway has no reason to complain, only no reason to wait.
func (w *Worker) backendClosed(err error) bool {
	if !errors.Is(err, core.ErrClosed) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurryUp()
	if w.isStopping() || w.given.Err() != nil {
		return true
	}
	w.closedErr = fmt.Errorf("worker: stopped as its backend is closed: %w", err)
	close(w.stopping)
	return true
}

func (w *Worker) isStopping() bool { return isClosed(w.stopping) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// supervise leads the worker through its end. It owns all other goroutines but
// those of handlers that never return.
func (w *Worker) supervise(ctx context.Context) {
	select {
	case <-ctx.Done():
		w.beginStop()
	case <-w.stopping:
	}
	w.slots.close()
	if !w.await(w.cfg.StopTimeout, w.hurry) {
		for _, q := range w.queues {
			q.leases.cancelAll(ErrStopping)
		}
		w.await(w.cfg.ReleaseTimeout, nil)
	}
	// First end what the loops live on, then wait for them.
	for _, q := range w.queues {
		q.settler.close()
		q.leases.close()
	}
	w.endOps()
	w.loops.Wait()
	w.senders.Wait()
	w.err = w.ending()
	if w.err != nil {
		w.cfg.Logger.Error("rota worker: it has stopped", "owner", w.cfg.Owner, "error", w.err)
	}
	close(w.done)
}

// ending gives what Stop answers.
func (w *Worker) ending() error {
	e := &StopError{Running: int(w.open.Load()), Unsettled: int(w.abandoned.Load())}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case *e == StopError{}:
		return w.closedErr
	case w.closedErr != nil:
		return fmt.Errorf("%w; %w", w.closedErr, e)
	}
	return e
}

// await waits until all is done, and reports false when the time is over or hurry
// is closed before that.
func (w *Worker) await(timeout time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(max(timeout, 0)) // core.None is negative
	defer timer.Stop()
	for !w.idle() {
		select {
		case <-w.progress:
		case <-hurry:
			return false
		case <-timer.C:
			return w.idle()
		}
	}
	return true
}

// idle reports whether there is nothing left to do for a worker that stops.
func (w *Worker) idle() bool {
	return !w.claimsRun.Load() && w.open.Load() == 0 && w.unsettled.Load() == 0
}

// progressed tells await that idle may have changed.
func (w *Worker) progressed() {
	if !w.isStopping() {
		return
	}
	select {
	case w.progress <- struct{}{}:
	default:
	}
}

func (w *Worker) claimsEnd() {
	w.claimsRun.Store(false)
	w.progressed()
}

// cancelAll ends the contexts of all running handlers.
func (l *leases) cancelAll(cause error) {
	var tasks []*Task
	l.each(func(t *Task) {
		if t.stage == running {
			tasks = append(tasks, t)
		}
	})
	for _, t := range tasks {
		t.cancel(cause)
	}
}
