package rotapostgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// Configure sets a queue's configuration; see core.Administrator.
func (b *Backend) Configure(ctx context.Context, queue string, cfg core.QueueConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if err := core.CheckQueue(queue); err != nil {
		return err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("postgres: configuration: %w", err)
	}
	c := cfg.WithDefaults()
	const thirtyYears = 30 * 365 * 24 * time.Hour
	_, err = actOne[any](ctx, b, "configure", `SELECT rota.configure($1::text, $2::text, $3::int8, $4::int4, $5::int4, $6::int4, $7::int4, $8::int8, $9::int8, $10::int8, $11::int8, $12::int8)::text`,
		queue, string(text), min(c.HeadStart, thirtyYears).Microseconds(), int32(c.OnFailure), int32(c.OnExhausted), int32(c.Scheduling), clamp(c.MaxAttempts),
		c.CompletedRetention.Microseconds(), c.DeadRetention.Microseconds(), c.CancelledRetention.Microseconds(), c.ResultTTL.Microseconds(), c.EventTTL.Microseconds())
	if err != nil {
		return err
	}
	b.known.Store(queue, true)
	// Once more, for publishes that still saw the old head start; see sql/bounds.sql.
	_, err = one[any](ctx, b, "configure", "SELECT rota.rewound()::text")
	return err
}

// PauseQueue stops claims from a queue.
func (b *Backend) PauseQueue(ctx context.Context, queue string) (bool, error) {
	return b.setPaused(ctx, queue, true)
}

// ResumeQueue undoes PauseQueue.
func (b *Backend) ResumeQueue(ctx context.Context, queue string) (bool, error) {
	changed, err := b.setPaused(ctx, queue, false)
	if changed {
		b.hints.made(queue)
	}
	return changed, err
}

func (b *Backend) setPaused(ctx context.Context, queue string, paused bool) (bool, error) {
	if err := core.CheckQueue(queue); err != nil {
		return false, err
	}
	changed, err := one[*bool](ctx, b, "pause or resume", `SELECT rota.set_paused($1::text, $2::bool)`, queue, paused)
	if err != nil {
		return false, err
	}
	if changed == nil {
		return false, notFound("queue", queue)
	}
	return *changed, nil
}

// DeleteQueue removes a queue with all it holds. It is one transaction: of a queue
// with millions of jobs it takes a while.
func (b *Backend) DeleteQueue(ctx context.Context, queue string, force bool) error {
	if err := core.CheckQueue(queue); err != nil {
		return err
	}
	left, err := actOne[int64](ctx, b, "delete a queue", `SELECT rota.delete_queue($1::text, $2::bool)`, queue, force)
	switch {
	case err != nil:
		return err
	case left < 0:
		return notFound("queue", queue)
	case left > 0:
		return fmt.Errorf("queue %q holds %d unfinished jobs: %w", queue, left, core.ErrQueueNotEmpty)
	}
	return nil
}

// ActOnGroup does act on a group.
func (b *Backend) ActOnGroup(ctx context.Context, queue, group string, act core.GroupAct) error {
	if err := core.CheckQueue(queue); err != nil {
		return err
	}
	if err := core.CheckGroup(group); err != nil {
		return err
	}
	if act < core.PauseGroup || act > core.SkipHead {
		return core.Invalid("group act", uint8(act), "is unknown")
	}
	var verdict int
	var job *string
	err := b.act(ctx, "act on a group", func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(`SELECT * FROM rota.act($1::text, $2::text, $3::int4)`), queue, group, int32(act)).Scan(&verdict, &job)
	})
	if err != nil {
		return err
	}
	switch verdict {
	case 1:
		return notFound("group", group)
	case 2:
		return notFound("head of group", group)
	case 3:
		return &core.StateError{Queue: queue, ID: text(job), State: core.StateRunning}
	}
	b.hints.ready(queue, true)
	return nil
}

// Move changes the state of jobs; see core.Administrator.
func (b *Backend) Move(ctx context.Context, req core.MoveRequest) (core.MoveResult, error) {
	if err := req.Validate(); err != nil {
		return core.MoveResult{}, err
	}
	limit, err := core.PageSize(req.Limit)
	if err != nil && len(req.IDs) == 0 {
		return core.MoveResult{}, err
	}
	var group *string
	if req.Group != "" {
		if !storable(req.Group) && len(req.IDs) == 0 {
			return core.MoveResult{}, nil
		}
		group = &req.Group
	}
	var ids []string
	for _, id := range req.IDs {
		if !storable(id) {
			id = "" // no job has this id
		}
		ids = append(ids, id)
	}
	var res core.MoveResult
	var touched bool
	err = b.act(ctx, "move", func(conn *pgxpool.Conn) error {
		res, touched = core.MoveResult{}, false
		if ids != nil {
			res.Errs = make([]error, len(ids))
		}
		rows, err := conn.Query(ctx, b.sql(`SELECT * FROM rota.move($1::text, $2::int4, $3::text[], $4::int4, $5::text, $6::int4)`),
			req.Queue, int32(req.To), ids, int32(req.From), group, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var ord int
			var verdict, state *int
			var holder, key *string
			if err := rows.Scan(&ord, &verdict, &state, &holder, &key); err != nil {
				return err
			}
			if ord == 0 {
				res.More = *verdict == 1
				continue
			}
			err := moveError(req, ord-1, *verdict, state, text(holder), text(key))
			if err == nil {
				res.Moved++
				touched = touched || *state != int(core.StateRunning)
			}
			if ids != nil {
				res.Errs[ord-1] = err
			}
		}
		return rows.Err()
	})
	if err != nil {
		return core.MoveResult{}, err
	}
	if touched {
		b.hints.ready(req.Queue, true)
	}
	if b.opts.Notify == NotifyOff && req.To == core.StateCancelled {
		for i, id := range req.IDs {
			if res.Errs[i] == nil {
				b.hub.deliver(core.Wake{Kind: core.WakeCancel, Queue: req.Queue, JobID: id})
			}
		}
	}
	return res, nil
}

func moveError(req core.MoveRequest, i, verdict int, state *int, holder, key string) error {
	id := ""
	if len(req.IDs) > 0 {
		id = req.IDs[i]
	}
	switch verdict {
	case 1:
		return notFound("job", id)
	case 2:
		return &core.StateError{Queue: req.Queue, ID: id, State: core.State(*state)}
	case 3:
		return &core.DuplicateError{Queue: req.Queue, Key: key, ID: holder}
	}
	return nil
}

// Update changes the contents of a job.
func (b *Backend) Update(ctx context.Context, queue, id string, patch core.Patch, while core.StateSet) error {
	if err := patch.Validate(b.opts.Limits); err != nil {
		return err
	}
	if err := core.CheckQueue(queue); err != nil {
		return err
	}
	if !storable(id) {
		return notFound("job", id)
	}
	s := settlement{}
	s.patch(0, 1, patch)
	code, err := actOne[int](ctx, b, "update", `SELECT rota.update_job($1::text, $2::text, $3::int4, $4::bytea, $5::text, $6::text, $7::bytea)`,
		queue, id, int32(while), only(s.payload), first(s.setHdrs), first(s.dropHdr), only(s.result))
	switch {
	case err != nil:
		return err
	case code == 1:
		return notFound("job", id)
	case code >= 16:
		return &core.StateError{Queue: queue, ID: id, State: core.State(code - 16)}
	}
	return nil
}

// Purge removes what is too old.
func (b *Backend) Purge(ctx context.Context, queue string, limit int) (int, error) {
	limit, err := core.PageSize(limit)
	if err != nil {
		return 0, err
	}
	if err := core.CheckQueue(queue); err != nil {
		return 0, err
	}
	return one[int](ctx, b, "purge", `SELECT rota.purge($1::text, $2::int4)`, queue, limit)
}

// clamp makes a number of attempts fit its column.
func clamp(n int) int32 { return int32(min(n, 1<<31-1)) }
