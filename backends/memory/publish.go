package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/rota-queue/rota/core"
)

// Publish stores a batch; see core.Producer.
func (b *Backend) Publish(ctx context.Context, req core.PublishRequest) ([]core.PublishResult, error) {
	if err := req.Validate(b.limits); err != nil {
		return nil, err
	}
	now, unlock, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	results := make([]core.PublishResult, len(req.Jobs))
	if req.AllOrNothing && b.refuseAll(req.Jobs, results, now) {
		return results, nil
	}
	for i := range req.Jobs {
		results[i] = b.publish(&req.Jobs[i], now)
	}
	return results, nil
}

// targets gives the queues a job goes to, sorted.
func (b *Backend) targets(n *core.NewJob) []string {
	if n.Topic == "" {
		return []string{n.Queue}
	}
	if bound := b.topics[n.Topic]; len(bound) > 0 {
		return slices.Sorted(maps.Keys(bound))
	}
	if n.Queue != "" {
		return []string{n.Queue}
	}
	return nil
}

// publish stores one job in all its queues, or refuses it in all of them.
func (b *Backend) publish(n *core.NewJob, now int64) core.PublishResult {
	res := core.PublishResult{ID: n.ID, Queues: b.targets(n)}
	if len(res.Queues) == 0 {
		res.Err = fmt.Errorf("topic %q: %w", n.Topic, core.ErrNoBinding)
		return res
	}
	if res.ID == "" {
		res.ID = uuid.Must(uuid.NewV7()).String()
	}
	for _, name := range res.Queues {
		q := b.queues[name]
		if q == nil { // what is refused does not make it
			q = b.deletedQueue(name)
		}
		if verdict := q.judge(n, res.ID, now); verdict.stop {
			return q.refuse(n, verdict, res, now)
		}
	}
	for _, name := range res.Queues {
		j := b.ensureQueue(name).store(n, res.ID, now)
		if res.Seq == 0 {
			res.Seq = j.Seq
		}
	}
	return res
}

// store inserts a job that nothing speaks against.
func (q *queue) store(n *core.NewJob, id string, now int64) *job {
	j := &job{Job: core.Job{
		ID: id, Queue: q.name, Kind: n.Kind, Group: n.Group, Priority: n.Priority,
		Payload: bytes.Clone(n.Payload), Headers: maps.Clone(n.Headers),
		MaxAttempts: n.MaxAttempts, Timeout: n.Timeout, Deadline: n.Deadline, Retention: n.Retention,
		OnFailure: n.OnFailure, OnExhausted: n.OnExhausted, Scheduling: n.Scheduling,
		CreatedAt: timeOf(now), Seq: q.b.nextSeq(now),
	}}
	if j.MaxAttempts == 0 {
		j.MaxAttempts = q.eff.MaxAttempts
	}
	runAt := now
	if n.Delay > 0 {
		runAt = now + n.Delay.Microseconds()
	} else if !n.RunAt.IsZero() {
		runAt = max(now, n.RunAt.UnixMicro())
	}
	j.RunAt = timeOf(runAt)
	q.jobs[id] = j
	q.takeKey(n, j, now)
	q.enter(j, now)
	q.event(core.EventEnqueued, j, now, "", "")
	return j
}

// enter gives a new job its first place.
func (q *queue) enter(j *job, now int64) {
	scheduling := j.Scheduling
	if scheduling == core.ScheduleDefault {
		scheduling = q.eff.Scheduling
	}
	switch {
	case j.runAt() <= now:
		q.setState(j, core.StatePending, j.Seq)
		q.join(j, j.Seq, now, now)
	case j.Group != "" && scheduling == core.JoinWhenDue:
		q.setState(j, core.StateScheduled, j.runAt())
		q.stepAside(j, now)
	default:
		q.setState(j, core.StateScheduled, j.runAt())
		q.join(j, j.Seq, now, now)
	}
}
