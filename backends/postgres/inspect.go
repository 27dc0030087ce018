package rotapostgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// Queues lists the names of all queues.
func (b *Backend) Queues(ctx context.Context) ([]string, error) {
	return collect(ctx, b, "list queues", pgx.RowTo[string], `SELECT q.name FROM rota.queue q WHERE rota.exists_queue(q) ORDER BY q.name`)
}

// queueID finds a queue, or answers ErrNotFound.
func (b *Backend) queueID(ctx context.Context, queue string) (int, error) {
	if err := core.CheckQueue(queue); err != nil {
		return 0, err
	}
	id, err := readOne[int](ctx, b, "find a queue", `SELECT q.id FROM rota.queue q WHERE q.name = $1::text AND rota.exists_queue(q)`, queue)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, notFound("queue", queue)
	}
	return id, err
}

// QueueInfo describes a queue.
func (b *Backend) QueueInfo(ctx context.Context, queue string) (core.QueueInfo, error) {
	if err := core.CheckQueue(queue); err != nil {
		return core.QueueInfo{}, err
	}
	info := core.QueueInfo{Queue: queue, Jobs: map[core.State]int64{}}
	err := b.read(ctx, "describe a queue", func(conn *pgxpool.Conn) error {
		clear(info.Jobs)
		var config string
		var now int64
		var oldest *int64
		var states, tiers [8]int64
		var stateList, tierList []int64
		err := conn.QueryRow(ctx, b.sql(`SELECT q.paused, q.config, rota.us(), v.groups, v.oldest, v.states, v.tiers
			FROM rota.queue q, LATERAL rota.queue_view(q) v WHERE q.name = $1::text AND rota.exists_queue(q)`), queue).
			Scan(&info.Paused, &config, &now, &info.Groups, &oldest, &stateList, &tierList)
		if err != nil {
			return err
		}
		copy(states[:], stateList)
		copy(tiers[:], tierList)
		for _, s := range core.JobStates() {
			if n := states[s]; n > 0 {
				info.Jobs[s] = n
			}
		}
		copy(info.ByPriority[:], tiers[:])
		info.Now, info.OldestPending = timeOf(now), timeOf(num(oldest))
		if config != "" {
			return json.Unmarshal([]byte(config), &info.Config)
		}
		return nil
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return core.QueueInfo{}, notFound("queue", queue)
	}
	if err != nil {
		return core.QueueInfo{}, err
	}
	return info, nil
}

const dayMicros = int64(24 * time.Hour / time.Microsecond)

// Stats gives the daily counters.
func (b *Backend) Stats(ctx context.Context, queue string, days int) ([]core.DayStats, error) {
	if days < 1 || days > core.StatsDays {
		return nil, core.Invalid("days", days, fmt.Sprintf("is not between 1 and %d", core.StatsDays))
	}
	if _, err := b.queueID(ctx, queue); err != nil {
		return nil, err
	}
	return collect(ctx, b, "read counters", func(row pgx.CollectableRow) (core.DayStats, error) {
		var s core.DayStats
		var day int64
		err := row.Scan(&day, &s.Completed, &s.Failed, &s.Dead, &s.Cancelled)
		s.Day = timeOf(day * dayMicros)
		return s, err
	}, `SELECT d.day, coalesce(sum(t.completed), 0)::int8, coalesce(sum(t.failed), 0)::int8, coalesce(sum(t.dead), 0)::int8, coalesce(sum(t.cancelled), 0)::int8
		FROM (SELECT (rota.us() / 86400000000 - n)::int8 AS day FROM generate_series($2::int4 - 1, 0, -1) n) d
		LEFT JOIN rota.tally t ON t.day = d.day AND t.queue = (SELECT q.id FROM rota.queue q WHERE q.name = $1::text)
		GROUP BY d.day ORDER BY d.day`, queue, days)
}

// Group describes a group.
func (b *Backend) Group(ctx context.Context, queue, group string) (core.GroupInfo, error) {
	if err := core.CheckQueue(queue); err != nil {
		return core.GroupInfo{}, err
	}
	if err := core.CheckGroup(group); err != nil {
		return core.GroupInfo{}, err
	}
	list, err := collect(ctx, b, "describe a group", scanGroup(queue), `SELECT v.* FROM rota.queue q, LATERAL rota.group_view(q, $2::text) v WHERE q.name = $1::text`, queue, group)
	if err != nil {
		return core.GroupInfo{}, err
	}
	if len(list) == 0 {
		return core.GroupInfo{}, notFound("group", group)
	}
	return list[0], nil
}

func scanGroup(queue string) pgx.RowToFunc[core.GroupInfo] {
	return func(row pgx.CollectableRow) (core.GroupInfo, error) {
		g := core.GroupInfo{Queue: queue}
		var head, owner, heldBy *string
		var created, due, fence, until *int64
		var leased bool
		err := row.Scan(&g.Group, &g.Priority, &g.Depth, &head, &created, &due, &leased, &owner, &fence, &until, &g.Paused, &g.Held, &heldBy)
		g.Head, g.OldestAt, g.DueSince, g.HeldBy = text(head), timeOf(num(created)), timeOf(num(due)), text(heldBy)
		if leased {
			g.Lease = &core.LeaseInfo{Owner: text(owner), Until: timeOf(num(until)), Fence: num(fence)}
		}
		return g, err
	}
}

// Groups lists groups.
func (b *Backend) Groups(ctx context.Context, f core.GroupFilter) (core.GroupPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.GroupPage{}, err
	}
	if !storable(f.Cursor) {
		return core.GroupPage{}, core.Invalid("cursor", f.Cursor, "is not one this listing gave")
	}
	if _, err := b.queueID(ctx, f.Queue); err != nil {
		return core.GroupPage{}, err
	}
	// A name whose group went meanwhile gives no row, so one more is asked for by
	// the name, not by the row.
	names, err := collect(ctx, b, "list groups", pgx.RowTo[string], `SELECT n FROM rota.queue q, LATERAL rota.group_names(q.id, $2::text, $3::int4) n WHERE q.name = $1::text`, f.Queue, f.Cursor, limit+1)
	if err != nil || len(names) == 0 {
		return core.GroupPage{}, err
	}
	var page core.GroupPage
	if len(names) > limit {
		names = names[:limit]
		page.Next = names[limit-1]
	}
	page.Groups, err = collect(ctx, b, "list groups", scanGroup(f.Queue), `SELECT v.* FROM rota.queue q, unnest($2::text[]) WITH ORDINALITY AS n(name, ord),
		LATERAL rota.group_view(q, n.name) v WHERE q.name = $1::text ORDER BY n.ord`, f.Queue, names)
	return page, err
}
