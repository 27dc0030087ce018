package worker

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// ErrStopping is the cause of a handler's context when the worker stops and its
// StopTimeout is over. A job whose handler then returns an error is given back
// without an attempt spent.
var ErrStopping = errors.New("worker is stopping")

// choice is an error that chooses how its job is settled. It is found through
// wrapping, so middleware may add to it.
type choice struct {
	action core.Action // 0: the handler has settled the lease itself
	delay  time.Duration
	err    error // may be nil
}

func (c *choice) Error() string {
	switch {
	case c.err != nil:
		return c.err.Error()
	case c.action == 0:
		return "settled by the handler itself"
	}
	return "the handler chose: " + c.action.String()
}

func (c *choice) Unwrap() error { return c.err }

// RetryAfter makes an error that fails the attempt like err would, but sets the
// delay until the next one instead of the retry policy.
func RetryAfter(d time.Duration, err error) error {
	return &choice{action: core.Retry, delay: d, err: err}
}

// Snooze makes an error that puts the job off by d. It is no failure and no
// attempt is spent.
func Snooze(d time.Duration) error { return &choice{action: core.Snooze, delay: d} }

// Release makes an error that gives the job back at its place, for any worker to
// claim at once. It is no failure and no attempt is spent.
func Release() error { return &choice{action: core.Release} }

// DeadLetter makes an error that moves the job to the dead letters whatever
// attempts are left, because of err.
func DeadLetter(err error) error { return &choice{action: core.Dead, err: err} }

// CancelJob makes an error that ends the job as cancelled. err may be nil; else it
// is recorded.
func CancelJob(err error) error { return &choice{action: core.Cancel, err: err} }

// AlreadySettled makes an error which says that the handler has settled the lease
// itself, in a transaction of its own, say (see [Task.Lease]): the worker writes
// nothing.
func AlreadySettled() error { return &choice{} }

// crash is the error of a handler that panicked or ended its goroutine.
type crash struct {
	text  string
	trace string
}

func (c *crash) Error() string { return c.text }

// newCrash makes the error for what recover gave: nil means runtime.Goexit.
func newCrash(recovered any) *crash {
	if recovered == nil {
		return &crash{text: "handler ended its goroutine (runtime.Goexit)"}
	}
	return &crash{text: "panic: " + printable(recovered), trace: string(debug.Stack())}
}

// printable formats any value, also one whose own methods panic.
func printable(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T whose text can not be had", v)
		}
	}()
	switch v := v.(type) {
	case error:
		return v.Error()
	case string:
		return v
	}
	return fmt.Sprint(v)
}

// clean makes a text fit for every store: valid UTF-8, no NUL, bounded.
func clean(text string) string {
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "�")
	}
	return core.CutError(strings.ToValidUTF8(text, "�"))
}

// decide fills in the outcome of a handler that returned err. cause is why its
// context had ended by then, or nil; cancelled tells that a person cancelled the
// job. It reports false when there is nothing to write.
func (t *Task) decide(err, cause error, cancelled bool) bool {
	o := &t.outcome
	if err == nil {
		o.Action = core.Complete
		return true
	}
	chosen, crashed := t.unwrap(err)
	switch {
	case chosen != nil && chosen.action == 0:
		return false
	case chosen != nil && chosen.action == core.Dead:
		o.Action = core.Dead
	case cancelled:
		o.Action = core.Cancel
	case chosen != nil:
		o.Action, o.Delay = chosen.action, clamp(chosen.delay)
	case errors.Is(cause, ErrStopping) && crashed == nil:
		o.Action = core.Release
	case t.late():
		o.Action = core.Dead
	default:
		o.Action, o.Delay = core.Retry, clamp(t.retryDelay(err))
	}
	o.Error, o.Trace = t.failureText(err, chosen, crashed)
	return true
}

// failureText gives what is to be recorded; nothing for an outcome that is no
// failure.
func (t *Task) failureText(err error, chosen *choice, crashed *crash) (text, trace string) {
	switch t.outcome.Action {
	case core.Release, core.Snooze:
		return "", ""
	case core.Cancel:
		if chosen != nil && chosen.err == nil || t.saysCancelled(err) {
			return "", ""
		}
	}
	if crashed != nil {
		trace = clean(crashed.trace)
	}
	return clean(printable(err)), trace
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), core.MaxDelay) }
