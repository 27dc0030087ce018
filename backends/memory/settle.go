package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// Settle ends leases; see core.Leaser.
func (b *Backend) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	if err := core.ValidateOutcomes(queue, outcomes, b.limits); err != nil {
		return nil, err
	}
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer unlock()
	results := make([]core.SettleResult, len(outcomes))
	for i, o := range outcomes {
		l, err := q.held(o.Lease)
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i].State = q.settle(l, o, now)
	}
	return results, nil
}

// held finds the lane of a lease that is still the holder's.
func (q *queue) held(ref core.LeaseRef) (*lane, error) {
	if q != nil {
		if j := q.jobs[ref.JobID]; j != nil && j.lane != nil && j.lane.running == j && j.lane.token == ref.Token && j.Group == ref.Group {
			return j.lane, nil
		}
	}
	return nil, fmt.Errorf("job %q in queue %q: %w", ref.JobID, ref.Queue, core.ErrLeaseLost)
}

func (q *queue) settle(l *lane, o core.Outcome, now int64) core.State {
	j, owner := l.running, l.owner
	j.apply(o.Patch)
	action := o.Action
	if j.CancelRequested && action != core.Complete && action != core.Dead {
		action = core.Cancel
	}
	failed := action == core.Retry || action == core.Dead
	if failed || o.Error != "" && (action == core.Cancel || action == core.Snooze) {
		j.fail(now, o.Error, o.Trace, owner)
	}
	if failed {
		q.day(now).Failed++
	}
	l.free()
	var state core.State
	switch {
	case action == core.Complete:
		state = q.end(l, j, core.StateCompleted, core.EventCompleted, now, "", owner)
	case action == core.Cancel:
		state = q.end(l, j, core.StateCancelled, core.EventCancelled, now, o.Error, owner)
	case action == core.Dead, action == core.Retry && j.exhausted():
		state = q.die(l, j, now, o.Error, owner)
	case action == core.Retry:
		state = q.postpone(l, j, core.StateRetrying, o.Delay, now)
		q.event(core.EventRetried, j, now, o.Error, owner)
	default: // Release, Snooze
		delay := o.Delay
		if action == core.Release {
			delay = 0
		}
		j.Attempt--
		state = q.postpone(l, j, core.StateScheduled, delay, now)
		q.event(core.EventReleased, j, now, o.Error, owner)
	}
	q.served(l, now)
	return state
}

// end takes a job out of its line for good.
func (q *queue) end(l *lane, j *job, s core.State, kind core.EventKind, now int64, text, owner string) core.State {
	l.remove(j)
	state := q.finish(j, s, now)
	q.event(kind, j, now, text, owner)
	return state
}

// die makes a job a dead letter, by its ExhaustedPolicy.
func (q *queue) die(l *lane, j *job, now int64, text, owner string) core.State {
	state := q.end(l, j, core.StateDead, core.EventDead, now, text, owner)
	policy := j.OnExhausted
	if policy == core.ExhaustedDefault {
		policy = q.eff.OnExhausted
	}
	if policy == core.Hold && l.group != "" {
		l.held, l.heldBy = true, j.ID
		q.event(core.EventHeld, j, now, text, owner)
	}
	return state
}

// postpone puts a job off by delay, by its FailurePolicy; waiting is the state of
// the wait.
func (q *queue) postpone(l *lane, j *job, waiting core.State, delay time.Duration, now int64) core.State {
	j.RunAt = timeOf(now + delay.Microseconds())
	if delay < time.Microsecond {
		q.setState(j, core.StatePending, j.place)
		return core.StatePending
	}
	policy := j.OnFailure
	if policy == core.FailureDefault {
		policy = q.eff.OnFailure
	}
	q.setState(j, waiting, j.runAt())
	if policy == core.Skip && l.group != "" {
		l.remove(j)
		q.stepAside(j, now)
	}
	return waiting
}

// Extend prolongs leases; see core.Leaser.
func (b *Backend) Extend(ctx context.Context, queue string, leases []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	if err := core.ValidateExtend(queue, leases, lease); err != nil {
		return nil, err
	}
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer unlock()
	results := make([]core.Extension, len(leases))
	for i, ref := range leases {
		l, err := q.held(ref)
		if err != nil {
			results[i].Err = err
			continue
		}
		l.until = now + lease.Microseconds()
		q.setDue(l, l.until, now)
		results[i] = core.Extension{Until: timeOf(l.until), CancelRequested: l.running.CancelRequested}
	}
	return results, nil
}

// Save changes a running job; see core.Leaser.
func (b *Backend) Save(ctx context.Context, lease core.LeaseRef, patch core.Patch) error {
	if err := patch.Validate(b.limits); err != nil {
		return err
	}
	q, _, unlock, err := b.queueOp(ctx, lease.Queue)
	if err != nil {
		return err
	}
	defer unlock()
	l, err := q.held(lease)
	if err != nil {
		return err
	}
	l.running.apply(patch)
	return nil
}
