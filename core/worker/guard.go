package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/rota-queue/rota/core"
)

// What a program gives a worker beside its handlers runs on the worker's own
// goroutines: the retry policy, the observer, the methods of the handlers' errors.
// A panic there would end the process, so it is caught here.

// guard calls f. When f panics, trouble is told the text and the stack of that, and
// guard reports false.
func guard(f func(), trouble func(text, stack string)) (ok bool) {
	defer func() {
		if recovered := recover(); recovered != nil {
			trouble("panic: "+printable(recovered), string(debug.Stack()))
		}
	}()
	f()
	return true
}

// guarded is guard for what is called because of the task.
func (t *Task) guarded(what string, f func()) bool {
	return guard(f, func(text, stack string) {
		t.q.log.Error("rota worker: "+what, "job", t.Job.ID, "kind", t.Job.Kind, "error", text, "stack", stack)
	})
}

// unwrap finds what the handler chose in its error, or else its crash. An error
// whose methods panic is one that chose nothing.
func (t *Task) unwrap(err error) (chosen *choice, crashed *crash) {
	if !t.guarded("the handler's error panicked as it was unwrapped: it counts as a plain failure", func() {
		if !errors.As(err, &chosen) {
			errors.As(err, &crashed)
		}
	}) {
		return nil, nil
	}
	return chosen, crashed
}

// saysCancelled reports whether the error only tells that its job was cancelled.
func (t *Task) saysCancelled(err error) (says bool) {
	t.guarded("the handler's error panicked as it was compared: it is recorded", func() {
		says = errors.Is(err, context.Canceled) || errors.Is(err, core.ErrCancelled)
	})
	return says
}

// fallbackRetry is for policies that panic.
var fallbackRetry = Exponential(DefaultRetryMin, DefaultRetryMax)

// retryDelay asks the retry policy.
func (t *Task) retryDelay(err error) (d time.Duration) {
	if !t.guarded("the retry policy panicked: the default delay is taken", func() { d = t.q.w.cfg.Retry(t.Job, err) }) {
		return fallbackRetry(t.Job, err)
	}
	return d
}

// tell calls a function of the observer.
func (q *queue) tell(f func()) {
	guard(f, func(text, stack string) {
		q.log.Error("rota worker: the observer panicked", "error", text, "stack", stack)
	})
}
