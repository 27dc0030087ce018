package memory

import (
	"context"
	"fmt"

	"github.com/rota-queue/rota/core"
)

// Configure sets a queue's configuration; see core.Administrator.
func (b *Backend) Configure(ctx context.Context, queue string, cfg core.QueueConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	_, _, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return err
	}
	defer unlock()
	q := b.ensureQueue(queue)
	q.cfg, q.eff = cfg, cfg.WithDefaults()
	return nil
}

// PauseQueue stops claims from a queue.
func (b *Backend) PauseQueue(ctx context.Context, queue string) (bool, error) {
	return b.setPaused(ctx, queue, true)
}

// ResumeQueue undoes PauseQueue.
func (b *Backend) ResumeQueue(ctx context.Context, queue string) (bool, error) {
	return b.setPaused(ctx, queue, false)
}

func (b *Backend) setPaused(ctx context.Context, queue string, paused bool) (bool, error) {
	q, _, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return false, err
	}
	defer unlock()
	if q == nil {
		return false, notFound("queue", queue)
	}
	changed := q.paused != paused
	q.paused = paused
	if changed && !paused {
		b.wake(core.Wake{Kind: core.WakeReady, Queue: queue})
	}
	return changed, nil
}

// DeleteQueue removes a queue with all it holds.
func (b *Backend) DeleteQueue(ctx context.Context, queue string, force bool) error {
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return err
	}
	defer unlock()
	if q == nil {
		return notFound("queue", queue)
	}
	open := int64(0)
	for _, n := range q.unfinished {
		open += n
	}
	if open > 0 && !force {
		return fmt.Errorf("queue %q holds %d unfinished jobs: %w", queue, open, core.ErrQueueNotEmpty)
	}
	delete(b.queues, queue)
	if kept := q.keptKeys(now); len(kept) > 0 {
		b.kept[queue] = kept
	}
	for _, bound := range b.topics {
		delete(bound, queue)
	}
	return nil
}

// ActOnGroup does act on a group.
func (b *Backend) ActOnGroup(ctx context.Context, queue, group string, act core.GroupAct) error {
	if err := core.CheckGroup(group); err != nil {
		return err
	}
	if act < core.PauseGroup || act > core.SkipHead {
		return core.Invalid("group act", uint8(act), "is unknown")
	}
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return err
	}
	defer unlock()
	if act == core.PauseGroup || act == core.HoldGroup {
		q = b.ensureQueue(queue)
		q.block(q.ensureGroup(group), act)
		return nil
	}
	var l *lane
	if q != nil {
		l, _ = q.groups.Get(group)
	}
	if l == nil {
		return notFound("group", group)
	}
	switch act {
	case core.ResumeGroup:
		l.paused = false
	case core.ReleaseGroup:
		l.held, l.heldBy = false, ""
	case core.SkipHead:
		return q.skipHead(l, now)
	}
	q.headChanged(l, now)
	return nil
}

func (q *queue) block(l *lane, act core.GroupAct) {
	if act == core.PauseGroup {
		l.paused = true
	} else {
		l.held = true
	}
	if l.running == nil {
		q.unqueue(l)
	}
}

func (q *queue) skipHead(l *lane, now int64) error {
	if len(l.line) == 0 {
		return notFound("head of group", l.group)
	}
	j := l.line[0]
	if l.running != nil {
		return &core.StateError{Queue: q.name, ID: l.running.ID, State: core.StateRunning}
	}
	q.end(l, j, core.StateCancelled, core.EventCancelled, now, "", "")
	q.headChanged(l, now)
	return nil
}

// Update changes the contents of a job.
func (b *Backend) Update(ctx context.Context, queue, id string, patch core.Patch, while core.StateSet) error {
	if err := patch.Validate(b.limits); err != nil {
		return err
	}
	q, _, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return err
	}
	defer unlock()
	j := q.find(id)
	switch {
	case j == nil:
		return notFound("job", id)
	case while != 0 && !while.Has(j.State):
		return &core.StateError{Queue: queue, ID: id, State: j.State}
	}
	j.apply(patch)
	return nil
}

func (q *queue) find(id string) *job {
	if q == nil {
		return nil
	}
	return q.jobs[id]
}

// Purge removes what is too old.
func (b *Backend) Purge(ctx context.Context, queue string, limit int) (int, error) {
	limit, err := core.PageSize(limit)
	if err != nil {
		return 0, err
	}
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if q == nil {
		return 0, nil
	}
	n := 0
	for ; n < limit; n++ {
		e, ok := q.expiring.Min()
		if !ok || e.score > now {
			break
		}
		q.drop(e.job)
	}
	q.trimEvents(now)
	q.trimKeys(now, limit)
	q.trimStats(now)
	return n, nil
}

// trimKeys looks at some keys, in the random order of a map, for dead ones.
func (q *queue) trimKeys(now int64, limit int) {
	for key := range q.dedup {
		if limit--; limit < 0 {
			return
		}
		q.takenKey(key, now)
	}
}
