package rotapostgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// viewColumns are the columns of rota.job_view that scanView reads.
const viewColumns = `v.seq, v.id, v.grp, v.kind, v.payload, v.headers, v.prio, v.state, v.attempt, v.max_attempts, v.run_at, v.timeout, v.deadline,
	v.retention, v.on_failure, v.on_exhausted, v.scheduling, v.created_at, v.claimed_at, v.finished_at, v.until, v.fence, v.owner, v.cancel, v.failures, v.result, v.dedup_key`

// listed is a job in a listing, with what orders it there.
type listed struct {
	job   *core.Job
	score int64
}

func scanView(queue string) pgx.RowToFunc[listed] {
	return func(row pgx.CollectableRow) (listed, error) {
		var r jobRow
		err := row.Scan(&r.seq, &r.id, &r.group, &r.kind, &r.payload, &r.headers, &r.priority, &r.state, &r.attempt, &r.maxAttempts, &r.runAt, &r.timeout, &r.deadline,
			&r.retention, &r.onFailure, &r.onExhausted, &r.scheduling, &r.createdAt, &r.claimedAt, &r.finishedAt, &r.until, &r.fence, &r.owner, &r.cancel, &r.failures, &r.result, &r.dedupKey, &r.score)
		if err != nil {
			return listed{}, err
		}
		job, err := r.job(queue)
		if err != nil {
			return listed{}, err
		}
		if job.State == core.StateRunning {
			job.Lease = &core.LeaseInfo{Owner: text(r.owner), Until: timeOf(num(r.until)), Fence: num(r.fence)}
		}
		return listed{job, r.score}, nil
	}
}

// Job gives one job.
func (b *Backend) Job(ctx context.Context, queue, id string) (*core.Job, error) {
	if err := core.CheckQueue(queue); err != nil {
		return nil, err
	}
	if !storable(id) {
		return nil, notFound("job", id)
	}
	list, err := collect(ctx, b, "read a job", scanView(queue), `SELECT `+viewColumns+`, 0::int8 FROM rota.job_view v
		WHERE v.queue = (SELECT q.id FROM rota.queue q WHERE q.name = $1::text) AND v.id = $2::text`, queue, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, notFound("job", id)
	}
	return list[0].job, nil
}

// scanFactor bounds how many jobs are looked at for a page whose filter fits few.
const scanFactor = 20

// Jobs lists jobs.
func (b *Backend) Jobs(ctx context.Context, f core.JobFilter) (core.JobPage, error) {
	if err := f.Validate(); err != nil {
		return core.JobPage{}, err
	}
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.JobPage{}, err
	}
	cursor, err := parseCursor(f.Cursor, f.Newest)
	if err != nil {
		return core.JobPage{}, err
	}
	id, err := b.queueID(ctx, f.Queue)
	if err != nil || !storable(f.Group) || !storable(f.Kind) {
		return core.JobPage{}, err
	}
	var page core.JobPage
	err = b.read(ctx, "list jobs", func(conn *pgxpool.Conn) error {
		page = core.JobPage{}
		at := cursor
		for {
			ids, next, err := b.listIDs(ctx, conn, id, f, at, limit+1-len(page.Jobs))
			if err != nil {
				return err
			}
			jobs, err := b.listJobs(ctx, conn, id, f, ids)
			if err != nil {
				return err
			}
			for _, l := range jobs {
				if len(page.Jobs) == limit {
					page.Next = at.String()
					return nil
				}
				page.Jobs = append(page.Jobs, l.job)
				at = place{l.score, l.job.Seq}
			}
			if next == nil {
				return nil
			}
			at = *next
			if len(page.Jobs) == limit {
				page.Next = at.String()
				return nil
			}
		}
	})
	return page, err
}

// place is where a job stands in a listing.
type place struct{ score, seq int64 }

func (p place) String() string { return fmt.Sprintf("%d.%d", p.score, p.seq) }

func parseCursor(s string, newest bool) (place, error) {
	if s == "" {
		if newest {
			return place{1<<63 - 1, 1<<63 - 1}, nil
		}
		return place{-1 << 62, 0}, nil
	}
	var p place
	if n, err := fmt.Sscanf(s, "%d.%d", &p.score, &p.seq); err != nil || n != 2 || p.String() != s {
		return place{}, core.Invalid("cursor", s, "is not one this listing gave")
	}
	return p, nil
}

// A source of a listing: where the jobs are, what orders them, and which column
// of job_view tells that it still holds.
type listSource struct{ from, score string }

func sourceOf(f core.JobFilter) listSource {
	switch f.State {
	case core.StateUnknown:
		return listSource{`rota.job j WHERE j.queue = $1::int4 AND j.inline AND j.grp = $7::text`, "j.place"}
	case core.StateRunning:
		return listSource{`(SELECT r.claimed, r.seq, r.id, x.grp, x.kind, x.queue FROM rota.running_ids($1::int4) r, LATERAL (SELECT * FROM rota.job z WHERE z.queue = $1::int4 AND z.id = r.id LIMIT 1) x) j WHERE true`, "j.claimed"}
	case core.StatePending:
		return listSource{`rota.job j WHERE j.queue = $1::int4 AND j.state = 2`, "j.place"}
	case core.StateScheduled, core.StateRetrying:
		return listSource{fmt.Sprintf(`rota.job j WHERE j.queue = $1::int4 AND j.state = %d AND j.state IN (1, 4)`, f.State), "j.run_at"}
	}
	return listSource{fmt.Sprintf(`rota.job j WHERE j.queue = $1::int4 AND j.state = %d AND j.state IN (5, 6, 7)`, f.State), "j.finished_at"}
}

// listIDs finds the next jobs of a listing. next is set when only some of them
// were looked at.
func (b *Backend) listIDs(ctx context.Context, conn *pgxpool.Conn, queue int, f core.JobFilter, at place, n int) (ids []string, next *place, err error) {
	s := sourceOf(f)
	order, beyond := "", ">"
	if f.Newest {
		order, beyond = " DESC", "<"
	}
	look := n * scanFactor
	sql := `SELECT y.id, y.score, y.seq, ($6::text = '' OR y.kind = $6::text) AND ($7::text = '' OR coalesce(y.grp, '') = $7::text) AND ` + stillThere(f) + `
		FROM (SELECT j.id, ` + s.score + ` AS score, j.seq, j.kind, j.grp FROM ` + s.from + `
			AND (` + s.score + `, j.seq) ` + beyond + ` ($2::int8, $3::int8) ORDER BY ` + s.score + order + `, j.seq` + order + ` LIMIT $5::int4) y
		WHERE $4::int4 > 0 ORDER BY y.score` + order + `, y.seq` + order
	rows, err := conn.Query(ctx, b.sql(sql), queue, at.score, at.seq, n, look, f.Kind, f.Group)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var id string
		var p place
		var fits bool
		if err := rows.Scan(&id, &p.score, &p.seq, &fits); err != nil {
			return nil, nil, err
		}
		seen++
		if fits {
			ids = append(ids, id)
			if len(ids) == n {
				break
			}
		}
		if seen == look {
			next = &p
		}
	}
	rows.Close()
	return ids, next, rows.Err()
}

// stillThere filters what a job's lane says: that it runs or not.
func stillThere(f core.JobFilter) string {
	switch f.State {
	case core.StatePending, core.StateScheduled, core.StateRetrying:
		return `(SELECT l.job FROM rota.lane l WHERE l.queue = $1::int4 AND l.key = coalesce(y.grp, y.id) AND l.lone = (y.grp IS NULL) LIMIT 1) IS DISTINCT FROM y.seq`
	}
	return "true"
}

// listJobs reads the jobs of a listing. One that has moved on since is left out.
func (b *Backend) listJobs(ctx context.Context, conn *pgxpool.Conn, queue int, f core.JobFilter, ids []string) ([]listed, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	score := map[core.State]string{
		core.StateUnknown: "v.place", core.StatePending: "v.place", core.StateRunning: "v.claimed_at",
		core.StateScheduled: "v.run_at", core.StateRetrying: "v.run_at",
	}[f.State]
	if score == "" {
		score = "v.finished_at"
	}
	rows, err := conn.Query(ctx, b.sql(`SELECT `+viewColumns+`, coalesce(`+score+`, 0) FROM unnest($2::text[]) WITH ORDINALITY AS n(id, ord)
		, LATERAL (SELECT * FROM rota.job_view w WHERE w.queue = $1::int4 AND w.id = n.id LIMIT 1) v
		WHERE CASE WHEN $3::int4 = 0 THEN v.inline ELSE v.state = $3::int4 END ORDER BY n.ord`), queue, ids, int32(f.State))
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, scanView(f.Queue))
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return list, err
}
