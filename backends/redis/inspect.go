package rotaredis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
)

// Queues lists the names of all queues. It costs two round trips: the list, and
// whether each queue in it still exists.
func (b *Backend) Queues(ctx context.Context) ([]string, error) {
	return await(ctx, b, func(ctx context.Context) ([]string, error) {
		names, err := b.client.SMembers(ctx, b.queuesKey()).Result()
		if err != nil {
			return nil, storeError("queues", err)
		}
		exists := make([]*redis.IntCmd, len(names))
		pipe := b.client.Pipeline()
		for i, name := range names {
			exists[i] = pipe.Exists(ctx, b.queueKey(name)+"m")
		}
		if _, err := pipe.Exec(ctx); err != nil && len(names) > 0 {
			return nil, storeError("queues", err)
		}
		var queues []string
		for i, name := range names {
			if exists[i].Val() == 1 {
				queues = append(queues, name)
			}
		}
		slices.Sort(queues)
		return queues, nil
	}, nil)
}

// ask runs a script on one queue.
func (b *Backend) ask(ctx context.Context, s *script, queue string, args ...any) (any, error) {
	if err := core.CheckQueue(queue); err != nil {
		return nil, err
	}
	return b.run(ctx, call{script: s, keys: []string{b.queueKey(queue)}, args: args})
}

// QueueInfo describes a queue.
func (b *Backend) QueueInfo(ctx context.Context, queue string) (core.QueueInfo, error) {
	reply, err := b.ask(ctx, scriptQueueInfo, queue)
	if err != nil {
		return core.QueueInfo{}, err
	}
	v := list(reply)
	if len(v) == 0 {
		return core.QueueInfo{}, notFound("queue", queue)
	}
	if len(v) != 5+len(core.JobStates())+core.MaxPriority {
		return core.QueueInfo{}, badReply("queue info", reply)
	}
	var d digits
	info := core.QueueInfo{
		Queue: queue, Now: timeOf(number(v[0])), Paused: number(v[1]) == 1, Groups: number(v[4]), Jobs: map[core.State]int64{},
	}
	if info.Config, err = decodeConfig(text(v[2])); err != nil {
		return core.QueueInfo{}, err
	}
	if created := text(v[3]); created != "" {
		info.OldestPending = timeOf(d.int(created))
	}
	unfinished := int64(0)
	for i, s := range core.JobStates() {
		n := number(v[5+i])
		if n > 0 {
			info.Jobs[s] = n
		}
		if !s.Finished() {
			unfinished += n
		}
	}
	tiers := v[5+len(core.JobStates()):]
	info.ByPriority[0] = unfinished
	for i := range tiers {
		info.ByPriority[i+1] = number(tiers[i])
		info.ByPriority[0] -= number(tiers[i])
	}
	return info, d.err
}

// Stats gives the daily counters.
func (b *Backend) Stats(ctx context.Context, queue string, days int) ([]core.DayStats, error) {
	if days < 1 || days > core.StatsDays {
		return nil, core.Invalid("days", days, fmt.Sprintf("is not between 1 and %d", core.StatsDays))
	}
	reply, err := b.ask(ctx, scriptStats, queue, days)
	if err != nil {
		return nil, err
	}
	v := list(reply)
	if len(v) == 0 {
		return nil, notFound("queue", queue)
	}
	if len(v) != 1+4*days {
		return nil, badReply("stats", reply)
	}
	stats := make([]core.DayStats, days)
	for i := range stats {
		day := number(v[0]) - int64(days-1-i)
		stats[i] = core.DayStats{
			Day:       time.Unix(day*86400, 0).UTC(),
			Completed: number(v[1+4*i]), Failed: number(v[2+4*i]), Dead: number(v[3+4*i]), Cancelled: number(v[4+4*i]),
		}
	}
	return stats, nil
}

// Job gives one job.
func (b *Backend) Job(ctx context.Context, queue, id string) (*core.Job, error) {
	reply, err := b.ask(ctx, scriptJob, queue, id)
	if err != nil {
		return nil, err
	}
	if reply == nil {
		return nil, notFound("job", id)
	}
	return decodeView(queue, reply)
}

// Jobs lists jobs, some megabytes of them at most in one page.
func (b *Backend) Jobs(ctx context.Context, f core.JobFilter) (core.JobPage, error) {
	if err := f.Validate(); err != nil {
		return core.JobPage{}, err
	}
	limit, _ := core.PageSize(f.Limit) // checked by Validate
	score, seq, err := splitCursor(f.Cursor)
	if err != nil {
		return core.JobPage{}, err
	}
	reply, err := b.ask(ctx, scriptJobs, f.Queue, int(f.State), f.Group, f.Kind, flag(f.Newest), limit, score, seq)
	if err != nil {
		return core.JobPage{}, err
	}
	v := list(reply)
	if len(v) == 1 {
		return core.JobPage{}, notFound("queue", f.Queue)
	}
	if len(v) < 3 {
		return core.JobPage{}, badReply("jobs", reply)
	}
	var page core.JobPage
	for _, part := range v[3:] {
		job, err := decodeView(f.Queue, part)
		if err != nil {
			return core.JobPage{}, err
		}
		page.Jobs = append(page.Jobs, job)
	}
	if text(v[1]) != "" {
		page.Next = text(v[1]) + "." + text(v[2])
	}
	return page, nil
}

// splitCursor takes a cursor of Jobs apart into score and Seq.
func splitCursor(cursor string) (score, seq string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	score, seq, ok := strings.Cut(cursor, ".")
	if !ok || !isNumber(score) || !isNumber(seq) {
		return "", "", core.Invalid("cursor", cursor, "is not one this listing gave")
	}
	return score, seq, nil
}

func isNumber(s string) bool {
	return s != "" && len(s) <= 19 && strings.Trim(s, "0123456789") == ""
}

// Group describes a group.
func (b *Backend) Group(ctx context.Context, queue, group string) (core.GroupInfo, error) {
	if err := core.CheckGroup(group); err != nil {
		return core.GroupInfo{}, err
	}
	reply, err := b.ask(ctx, scriptGroup, queue, group)
	if err != nil {
		return core.GroupInfo{}, err
	}
	if reply == nil {
		return core.GroupInfo{}, notFound("group", group)
	}
	return decodeGroup(queue, reply)
}

// Groups lists groups.
func (b *Backend) Groups(ctx context.Context, f core.GroupFilter) (core.GroupPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.GroupPage{}, err
	}
	reply, err := b.ask(ctx, scriptGroups, f.Queue, limit, f.Cursor)
	if err != nil {
		return core.GroupPage{}, err
	}
	v := list(reply)
	if len(v) == 1 {
		return core.GroupPage{}, notFound("queue", f.Queue)
	}
	if len(v) < 2 {
		return core.GroupPage{}, badReply("groups", reply)
	}
	page := core.GroupPage{Next: text(v[1])}
	for _, part := range v[2:] {
		info, err := decodeGroup(f.Queue, part)
		if err != nil {
			return core.GroupPage{}, err
		}
		page.Groups = append(page.Groups, info)
	}
	return page, nil
}

// decodeGroup makes a group of what lua/lib_groups.lua gives.
func decodeGroup(queue string, reply any) (core.GroupInfo, error) {
	v := list(reply)
	if len(v) != 7 {
		return core.GroupInfo{}, badReply("group", reply)
	}
	var d digits
	info := core.GroupInfo{Queue: queue, Group: text(v[0]), Priority: int(d.int(text(v[1]))), Depth: number(v[2])}
	if member := text(v[3]); len(member) > seqDigits {
		info.Head, info.OldestAt = member[seqDigits+1:], timeOf(d.int(member[:seqDigits]))
	}
	block := text(v[6])
	if len(block) >= 2 {
		info.Paused, info.Held, info.HeldBy = block[0] == '1', block[1] == '1', block[2:]
	}
	due := time.Time{}
	if text(v[5]) != "" {
		due = timeOf(d.int(text(v[5])))
	}
	if text(v[4]) != "" {
		l, err := decodeLease(text(v[4]))
		if err != nil {
			return core.GroupInfo{}, err
		}
		info.Lease = &core.LeaseInfo{Owner: l.owner, Until: due, Fence: l.fence}
	}
	if !info.Paused && !info.Held {
		info.DueSince = due
	}
	return info, d.err
}
