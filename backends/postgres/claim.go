package rotapostgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// What rota.claim says came of it.
const (
	claimDone = iota
	claimPaused
	claimNoQueue
	claimIsolation
	claimMore // done, and there may be more at once
)

// stuckLast bounds how rarely a worker asks while something that is due is locked by
// others: by a call that is about to end, or a program's transaction that is not.
const stuckLast = 20 * time.Millisecond

// Claim leases groups that are due; see core.Leaser.
func (b *Backend) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	if err := req.Validate(); err != nil {
		return core.ClaimResult{}, err
	}
	bounds := b.bounds.of(req.Queue)
	most := bounds.most(req.Max)
	salt := newSalt()
	var c claimed
	err := b.do(ctx, "claim", func(conn *pgxpool.Conn) error {
		c = claimed{req: req, salt: salt}
		rows, err := conn.Query(ctx, b.sql(`SELECT * FROM rota.claim($1::text, $2::int4, $3::int4, $4::int8, $5::text, $6::int8, $7::int8[], $8::bool)`),
			req.Queue, most, req.MinPriority, req.Lease.Microseconds(), req.Owner, salt, bounds.take(), req.ByTurn)
		if err != nil {
			return err
		}
		return c.read(rows)
	})
	if err != nil {
		return core.ClaimResult{}, err
	}
	switch c.outcome {
	case claimPaused:
		return core.ClaimResult{}, fmt.Errorf("claim from queue %q: %w", req.Queue, core.ErrQueuePaused)
	case claimNoQueue:
		return core.ClaimResult{}, nil
	case claimIsolation:
		return core.ClaimResult{}, fmt.Errorf("postgres: claim: %w: the transaction isolation is not \"read committed\": correct default_transaction_isolation of the role", core.ErrMisconfigured)
	}
	left := c.outcome == claimDone && len(c.leases) < most && c.next > 0 && c.next <= c.now
	stuck := bounds.give(c.bounds, left && len(c.leases) == 0)
	bounds.met(len(c.leases), c.size)
	slices.SortFunc(c.leases, func(a, b orderedLease) int { return a.ord - b.ord })
	var res core.ClaimResult
	if len(c.leases) > 0 {
		res.Leases = make([]core.Lease, len(c.leases))
		for i := range c.leases {
			res.Leases[i] = c.leases[i].Lease
		}
	}
	switch {
	case len(res.Leases) == req.Max:
	case c.outcome == claimMore, len(res.Leases) == most:
		res.Next = time.Microsecond
	case left: // soon, unless that was in vain several times
		res.Next = min(time.Millisecond<<min(max(stuck-1, 0), 10), stuckLast)
	case c.next > 0:
		res.Next = time.Duration(c.next-c.now) * time.Microsecond
	}
	return res, nil
}

// claimed is what rota.claim answered.
type claimed struct {
	req       core.ClaimRequest
	salt      int64
	leases    []orderedLease
	outcome   int64
	now, next int64
	bounds    []int64
	size      int // of what the jobs carry, in bytes
}

type orderedLease struct {
	core.Lease
	ord int
}

// rowReader is the part of pgx.Rows that is needed.
type rowReader interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

func (c *claimed) read(rows rowReader) error {
	defer rows.Close()
	var ord int
	var fence, until *int64
	var meta []int64
	var tid pgtype.TID
	var r jobRow
	for rows.Next() {
		r = jobRow{}
		if err := rows.Scan(&ord, &fence, &until, &meta, &r.seq, &r.id, &r.group, &r.kind, &r.payload, &r.headers, &r.priority, &r.attempt, &r.maxAttempts,
			&r.runAt, &r.timeout, &r.deadline, &r.retention, &r.onFailure, &r.onExhausted, &r.scheduling, &r.createdAt, &r.failures, &r.result, &r.dedupKey, &tid); err != nil {
			return err
		}
		if ord < 0 {
			c.outcome = meta[0]
			if c.outcome == claimDone || c.outcome == claimMore {
				c.now, c.next, c.bounds = meta[1], meta[2], meta[3:]
			}
			continue
		}
		c.size += len(r.payload) + len(r.result) + len(text(r.headers)) + len(text(r.failures))
		job, err := r.job(c.req.Queue)
		if err != nil {
			return err
		}
		job.State, job.ClaimedAt = core.StateRunning, timeOf(*until-c.req.Lease.Microseconds())
		job.Lease = &core.LeaseInfo{Owner: c.req.Owner, Until: timeOf(*until), Fence: *fence}
		l := orderedLease{ord: ord, Lease: core.Lease{
			LeaseRef: core.LeaseRef{Queue: c.req.Queue, Group: job.Group, JobID: job.ID, Token: token(*fence, c.salt, tid)},
			Fence:    *fence, Until: timeOf(*until), Job: job,
		}}
		c.leases = append(c.leases, l)
	}
	return rows.Err()
}
