package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

// Queues lists the names of all queues.
func (b *Backend) Queues(ctx context.Context) ([]string, error) {
	_, unlock, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return slices.Sorted(maps.Keys(b.queues)), nil
}

// QueueInfo describes a queue.
func (b *Backend) QueueInfo(ctx context.Context, queue string) (core.QueueInfo, error) {
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return core.QueueInfo{}, err
	}
	defer unlock()
	if q == nil {
		return core.QueueInfo{}, notFound("queue", queue)
	}
	info := core.QueueInfo{
		Queue: queue, Paused: q.paused, Config: q.cfg, Now: timeOf(now),
		Jobs: map[core.State]int64{}, ByPriority: q.unfinished, Groups: int64(q.groups.Len()),
	}
	for _, s := range core.JobStates() {
		if n := q.states[s].Len(); n > 0 {
			info.Jobs[s] = int64(n)
		}
	}
	if e, ok := q.states[core.StatePending].Min(); ok {
		info.OldestPending = e.job.CreatedAt
	}
	return info, nil
}

func (q *queue) day(now int64) *core.DayStats {
	day := now / (24 * time.Hour).Microseconds()
	s := q.stats[day]
	if s == nil {
		s = &core.DayStats{Day: time.Unix(day*86400, 0).UTC()}
		q.stats[day] = s
	}
	return s
}

func (q *queue) trimStats(now int64) {
	today := now / (24 * time.Hour).Microseconds()
	maps.DeleteFunc(q.stats, func(day int64, _ *core.DayStats) bool { return day <= today-core.StatsDays })
}

// Stats gives the daily counters.
func (b *Backend) Stats(ctx context.Context, queue string, days int) ([]core.DayStats, error) {
	if days < 1 || days > core.StatsDays {
		return nil, core.Invalid("days", days, fmt.Sprintf("is not between 1 and %d", core.StatsDays))
	}
	q, now, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if q == nil {
		return nil, notFound("queue", queue)
	}
	stats := make([]core.DayStats, days)
	for i := range stats {
		stats[i] = *q.day(now - int64(days-1-i)*(24*time.Hour).Microseconds())
	}
	return stats, nil
}

// Job gives one job.
func (b *Backend) Job(ctx context.Context, queue, id string) (*core.Job, error) {
	q, _, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return nil, err
	}
	defer unlock()
	j := q.find(id)
	if j == nil {
		return nil, notFound("job", id)
	}
	return j.copyOf(), nil
}

// Jobs lists jobs.
func (b *Backend) Jobs(ctx context.Context, f core.JobFilter) (core.JobPage, error) {
	if err := f.Validate(); err != nil {
		return core.JobPage{}, err
	}
	cursor, err := parseCursor(f.Cursor)
	if err != nil {
		return core.JobPage{}, err
	}
	q, _, unlock, err := b.queueOp(ctx, f.Queue)
	if err != nil {
		return core.JobPage{}, err
	}
	defer unlock()
	if q == nil {
		return core.JobPage{}, notFound("queue", f.Queue)
	}
	limit, _ := core.PageSize(f.Limit) // checked by Validate
	var page core.JobPage
	var last entry
	scan := func(e entry) bool {
		if cursor != nil && !beyond(*cursor, e, f.Newest) {
			return true
		}
		if f.Group != "" && e.job.Group != f.Group || f.Kind != "" && e.job.Kind != f.Kind {
			return true
		}
		if len(page.Jobs) == limit {
			page.Next = fmt.Sprintf("%d.%d", last.score, last.seq)
			return false
		}
		page.Jobs = append(page.Jobs, e.job.copyOf())
		last = e
		return true
	}
	q.scan(f, cursor, scan)
	return page, nil
}

// scan visits what the filter lists, from the cursor on, in order.
func (q *queue) scan(f core.JobFilter, cursor *entry, visit func(entry) bool) {
	if f.State == core.StateUnknown {
		q.scanLine(f, visit)
		return
	}
	ix := q.states[f.State]
	switch {
	case f.Newest && cursor != nil:
		ix.Descend(*cursor, visit)
	case f.Newest:
		ix.Reverse(visit)
	case cursor != nil:
		ix.Ascend(*cursor, visit)
	default:
		ix.Scan(visit)
	}
}

func (q *queue) scanLine(f core.JobFilter, visit func(entry) bool) {
	l, ok := q.groups.Get(f.Group)
	if !ok {
		return
	}
	line := slices.Clone(l.line)
	if f.Newest {
		slices.Reverse(line)
	}
	for _, j := range line {
		if !visit(entry{j.place, j.Seq, j}) {
			return
		}
	}
}

func beyond(cursor, e entry, newest bool) bool {
	if newest {
		return entryLess(e, cursor)
	}
	return entryLess(cursor, e)
}

func parseCursor(s string) (*entry, error) {
	if s == "" {
		return nil, nil
	}
	var e entry
	if n, err := fmt.Sscanf(s, "%d.%d", &e.score, &e.seq); err != nil || n != 2 {
		return nil, core.Invalid("cursor", s, "is not one this listing gave")
	}
	return &e, nil
}

// Group describes a group.
func (b *Backend) Group(ctx context.Context, queue, group string) (core.GroupInfo, error) {
	if err := core.CheckGroup(group); err != nil {
		return core.GroupInfo{}, err
	}
	q, _, unlock, err := b.queueOp(ctx, queue)
	if err != nil {
		return core.GroupInfo{}, err
	}
	defer unlock()
	if q != nil {
		if l, ok := q.groups.Get(group); ok {
			return q.describe(l), nil
		}
	}
	return core.GroupInfo{}, notFound("group", group)
}

func (q *queue) describe(l *lane) core.GroupInfo {
	info := core.GroupInfo{
		Queue: q.name, Group: l.group, Priority: l.tier, Depth: int64(len(l.line)),
		Paused: l.paused, Held: l.held, HeldBy: l.heldBy,
	}
	if l.queued && !l.blocked() {
		info.DueSince = timeOf(l.due)
	}
	head := l.running
	if head != nil {
		info.Lease = l.leaseInfo()
	} else if len(l.line) > 0 {
		head = l.line[0]
	}
	if head != nil {
		info.Head, info.OldestAt = head.ID, head.CreatedAt
	}
	return info
}

// Groups lists groups.
func (b *Backend) Groups(ctx context.Context, f core.GroupFilter) (core.GroupPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.GroupPage{}, err
	}
	q, _, unlock, err := b.queueOp(ctx, f.Queue)
	if err != nil {
		return core.GroupPage{}, err
	}
	defer unlock()
	if q == nil {
		return core.GroupPage{}, notFound("queue", f.Queue)
	}
	var page core.GroupPage
	q.groups.Ascend(f.Cursor, func(name string, l *lane) bool {
		if name == f.Cursor {
			return true
		}
		if len(page.Groups) == limit {
			page.Next = page.Groups[limit-1].Group
			return false
		}
		page.Groups = append(page.Groups, q.describe(l))
		return true
	})
	return page, nil
}
