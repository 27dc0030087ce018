package memory

import (
	"context"

	"github.com/rota-queue/rota/core"
)

// Move changes the state of jobs; see core.Administrator.
func (b *Backend) Move(ctx context.Context, req core.MoveRequest) (core.MoveResult, error) {
	if err := req.Validate(); err != nil {
		return core.MoveResult{}, err
	}
	q, now, unlock, err := b.queueOp(ctx, req.Queue)
	if err != nil {
		return core.MoveResult{}, err
	}
	defer unlock()
	if len(req.IDs) == 0 {
		return q.moveMany(req, now), nil
	}
	res := core.MoveResult{Errs: make([]error, len(req.IDs))}
	for i, id := range req.IDs {
		j := q.find(id)
		if j == nil {
			res.Errs[i] = notFound("job", id)
		} else if res.Errs[i] = q.move(j, req.To, now); res.Errs[i] == nil {
			res.Moved++
		}
	}
	return res, nil
}

// moveMany moves the oldest jobs of a state.
func (q *queue) moveMany(req core.MoveRequest, now int64) core.MoveResult {
	var res core.MoveResult
	if q == nil {
		return res
	}
	limit, _ := core.PageSize(req.Limit) // checked by Validate
	var jobs []*job
	q.states[req.From].Scan(func(e entry) bool {
		asked := e.job.State == core.StateRunning && e.job.CancelRequested
		if (req.Group == "" || e.job.Group == req.Group) && !asked {
			jobs = append(jobs, e.job)
		}
		return true
	})
	for _, j := range jobs {
		if res.Moved == limit {
			res.More = true
			break
		}
		if q.move(j, req.To, now) == nil {
			res.Moved++
		}
	}
	return res
}

func (q *queue) move(j *job, to core.State, now int64) error {
	wrong := &core.StateError{Queue: q.name, ID: j.ID, State: j.State}
	if j.State == core.StateRunning {
		if to != core.StateCancelled {
			return wrong
		}
		j.CancelRequested = true
		q.b.wake(core.Wake{Kind: core.WakeCancel, Queue: q.name, JobID: j.ID})
		return nil
	}
	if j.State == to {
		return wrong
	}
	if to == core.StatePending {
		if err := q.retake(j, to, now); err != nil {
			return err
		}
	}
	l := j.lane
	if l != nil {
		l.remove(j)
	}
	switch to {
	case core.StatePending:
		q.redrive(j, l, now)
	case core.StateGone:
		q.event(core.EventDeleted, j, now, "", "")
		q.drop(j)
	case core.StateCancelled:
		q.finish(j, to, now)
		q.event(core.EventCancelled, j, now, "", "")
	case core.StateDead:
		q.finish(j, to, now)
		q.event(core.EventDead, j, now, "", "")
	}
	if l != nil && j.lane != l {
		q.headChanged(l, now)
	}
	if to != core.StateDead {
		q.unhold(j, now)
	}
	return nil
}

// redrive puts a job back in line. l is the lane it stood in, if any.
func (q *queue) redrive(j *job, l *lane, now int64) {
	if j.place == 0 {
		j.place = now
	}
	j.RunAt = timeOf(now)
	j.FinishedAt = timeOf(0)
	if j.exhausted() {
		j.MaxAttempts = j.Attempt + 1
	}
	q.event(core.EventRedriven, j, now, "", "")
	q.setState(j, core.StatePending, j.place)
	if l == nil {
		q.join(j, j.place, now, now)
		return
	}
	l.insert(j)
	q.headChanged(l, now)
}

// unhold ends the hold a job has put on its group.
func (q *queue) unhold(j *job, now int64) {
	if j.Group == "" {
		return
	}
	if l, ok := q.groups.Get(j.Group); ok && l.held && l.heldBy == j.ID {
		l.held, l.heldBy = false, ""
		q.headChanged(l, now)
	}
}
