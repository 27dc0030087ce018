package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rota-queue/rota/core"
)

// heartbeats extends all leases held of the queue, in one call a beat, until ctx
// ends. After a call that failed the next beat comes sooner.
func (q *queue) heartbeats(ctx context.Context) {
	every := q.w.cfg.Heartbeat
	timer := time.NewTimer(rand.N(every)) // workers that start together beat apart
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		start := time.Now()
		pause := every
		if !q.beat(ctx) {
			pause = every / 4
		}
		timer.Reset(max(pause-time.Since(start), every/8))
	}
}

// beat reports whether every lease that was asked for got an answer.
func (q *queue) beat(ctx context.Context) bool {
	tasks := q.beating(time.Now())
	for len(tasks) > 0 {
		n := min(len(tasks), core.MaxSettleBatch)
		if !q.extend(ctx, tasks[:n]) {
			return false
		}
		tasks = tasks[n:]
	}
	return true
}

// beating lists the tasks whose leases are to be extended.
func (q *queue) beating(now time.Time) []*Task {
	var tasks []*Task
	limit := q.w.cfg.MaxHandling
	q.leases.each(func(t *Task) {
		if t.stage == running && limit > 0 && !t.started.IsZero() && now.Sub(t.started) >= limit {
			return
		}
		tasks = append(tasks, t)
	})
	return tasks
}

func (q *queue) extend(ctx context.Context, tasks []*Task) bool {
	refs := make([]core.LeaseRef, len(tasks))
	for i, t := range tasks {
		refs[i] = t.outcome.Lease
	}
	ctx, cancel := context.WithTimeout(ctx, q.w.cfg.Heartbeat)
	defer cancel()
	sent := time.Now()
	results, err := q.w.backend.Extend(ctx, q.name, refs, q.w.cfg.Lease)
	if err == nil {
		err = checkCount(len(results), len(tasks))
	}
	if q.w.backendClosed(err) {
		return false
	}
	if err != nil {
		if q.w.ops.Err() == nil { // else the worker has stopped
			q.extendTrouble.report(err)
		}
		return false
	}
	q.extendTrouble.over()
	for i, t := range tasks {
		switch {
		case results[i].Err != nil:
			// For a task that is settling this says nothing: it may have been
			// settled already. The answer to its Settle will tell.
			q.leases.lose(t)
			continue
		case results[i].CancelRequested:
			q.cancelled(t)
		}
		q.leases.extended(t, sent.Add(q.w.cfg.Lease))
	}
	return true
}

// cancelled ends the context of a running task whose job a person has cancelled.
func (q *queue) cancelled(t *Task) {
	if q.leases.requestCancel(t) {
		q.log.Info("rota worker: job was cancelled", "job", t.Job.ID, "kind", t.Job.Kind)
		t.cancel(core.ErrCancelled)
	}
}
