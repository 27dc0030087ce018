package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// The causes with which a handler's context ends by time.
var (
	errTimeout  = fmt.Errorf("the job's timeout is over: %w", context.DeadlineExceeded)
	errDeadline = fmt.Errorf("the job's deadline has passed: %w", context.DeadlineExceeded)
)

// run runs the handler of one task. The task is finished whatever the handler
// does: return, panic or end the goroutine.
func (t *Task) run() {
	t.q.leases.begin(t, time.Now())
	var err error
	returned := false
	defer func() {
		if !returned {
			err = t.crashed(recover())
		}
		t.finish(err)
	}()
	err = t.handle()
	returned = true
}

func (t *Task) crashed(recovered any) error {
	c := newCrash(recovered)
	t.q.log.Error("rota worker: handler crashed", "job", t.Job.ID, "kind", t.Job.Kind, "error", c.text, "stack", c.trace)
	return c
}

// handle calls the handler, unless the worker stops.
func (t *Task) handle() error {
	w := t.q.w
	if w.isStopping() {
		return Release()
	}
	if err := context.Cause(&t.ctx); err != nil {
		return err // it was cancelled or its lease was lost while it waited for a slot
	}
	if t.late() {
		return errDeadline
	}
	if end, cause := t.timeLimit(); !end.IsZero() {
		t.ctx.Context, t.endTimer = context.WithDeadlineCause(t.ctx.Context, end, cause)
	}
	return w.handler.Handle(&t.ctx, t)
}

// timeLimit gives the end of the handler's time, by its timeout or the job's
// deadline, and the cause to end with; a zero time when there is none.
func (t *Task) timeLimit() (time.Time, error) {
	timeout := t.Job.Timeout
	if timeout == 0 {
		timeout = t.q.w.cfg.Timeout
	}
	if timeout == 0 {
		return t.deadline, errDeadline
	}
	end := t.started.Add(timeout)
	if !t.deadline.IsZero() && t.deadline.Before(end) {
		return t.deadline, errDeadline
	}
	return end, errTimeout
}

// finish settles the task by what its handler returned, and frees the slot.
func (t *Task) finish(err error) {
	q, now := t.q, time.Now()
	cause := context.Cause(&t.ctx)
	if !t.started.IsZero() {
		t.ran = now.Sub(t.started)
		q.w.slots.took(t.ran)
	}
	t.closePatch()
	held, cancelled := q.leases.leave(t, now)
	t.cancel(nil)
	if t.endTimer != nil {
		t.endTimer()
	}
	switch {
	case !t.decide(err, cause, cancelled): // the handler has settled the lease itself
		q.leases.drop(t)
		q.observe(t, 0, core.StateUnknown, nil)
		q.hint()
	case held:
		q.settle(t)
	default:
		q.zombie(t, err)
	}
	q.w.slotFree()
}

// settle hands the outcome to the settler.
func (q *queue) settle(t *Task) {
	q.w.unsettled.Add(1)
	q.settler.add(t)
}

// zombie notes the end of a handler whose lease was lost before: what it returned
// is not written.
func (q *queue) zombie(t *Task, err error) {
	if err != nil {
		err = fmt.Errorf("%w (the handler returned: %s)", core.ErrLeaseLost, printable(err))
	} else {
		err = core.ErrLeaseLost
	}
	q.loseOutcome(t, 0, err)
}

// loseOutcome counts and logs an outcome that was not written.
func (q *queue) loseOutcome(t *Task, action core.Action, err error) {
	q.w.count.outcomesLost.Add(1)
	q.log.Warn("rota worker: an outcome was not written", "job", t.Job.ID, "kind", t.Job.Kind,
		"group", t.Job.Group, "attempt", t.Job.Attempt, "action", action.String(), "error", err)
	q.observe(t, action, core.StateUnknown, err)
}

func (q *queue) observe(t *Task, action core.Action, state core.State, err error) {
	if f := q.w.cfg.Observer.Settled; f != nil {
		q.tell(func() { f(Settlement{Job: t.Job, Action: action, State: state, Ran: t.ran, Err: err}) })
	}
}

func (w *Worker) slotFree() {
	w.open.Add(-1)
	w.rouse(forSlots)
	w.progressed()
}
