package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// poolPatience is how long a queue that is to be made waits for a connection of the pool.
const poolPatience = 200 * time.Millisecond

// PublishTx publishes in the caller's transaction: the jobs are there as it
// commits and gone if it rolls back. It inserts and locks nothing that others
// share, so publishers can not wait for each other or hold up a claim; only an id
// or a dedup key that another open transaction has taken must be waited for.
// ReplacePending locks the job it replaces, and that one is not claimed until the
// transaction ends.
//
// Jobs get their places in line as PublishTx is called: order within a group is
// that of the calls, not of the commits, among transactions that overlap.
//
// A queue that does not exist is made by a connection of its own, and stays when
// the transaction rolls back. Idle workers are told within milliseconds of the
// commit, as long as this process lives; otherwise they find the jobs as they
// poll.
//
// After an error the transaction can only be rolled back, unless the error
// matches core.ErrInvalid.
func (b *Backend) PublishTx(ctx context.Context, tx pgx.Tx, req core.PublishRequest) ([]core.PublishResult, error) {
	p, err := b.plan(req)
	if err != nil || len(req.Jobs) == 0 {
		return nil, err
	}
	if err := b.beginTx(ctx, tx); err != nil {
		return nil, err
	}
	defer b.calls.Done()
	p.inTx = true
	if err := b.ensureQueues(ctx, tx, p); err != nil {
		return nil, err
	}
	results, err := p.run(ctx, tx)
	if errors.Is(err, errNoQueue) { // its snapshot is older than the queue
		return nil, fmt.Errorf("postgres: publish in a transaction: %w: the queue was made after it began, nothing was done: roll the transaction back and begin again", ErrTxConflict)
	}
	if err != nil {
		return nil, storeError(ctx, "publish in a transaction", err)
	}
	b.watch.after(p.xact, p.hint)
	return results, nil
}

// SettleTx settles in the caller's transaction, so that the effects of a handler
// on the same database and the completion of its job are one. It is fenced like
// Settle: for a stale lease it answers ErrLeaseLost, changes nothing, and the
// caller should roll back.
//
// The groups stay leased, and locked, until the transaction ends: Extend leaves them
// as they are, and nothing of others waits for them. When it takes
// longer than the lease, the job may be run again by another worker as soon as the
// transaction ends without a commit.
func (b *Backend) SettleTx(ctx context.Context, tx pgx.Tx, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	s, err := b.planSettle(queue, outcomes)
	if err != nil || len(outcomes) == 0 {
		return nil, err
	}
	if err := b.beginTx(ctx, tx); err != nil {
		return nil, err
	}
	defer b.calls.Done()
	results, err := s.run(ctx, tx, true)
	if err != nil {
		return nil, storeError(ctx, "settle in a transaction", err)
	}
	b.watch.after(s.xact, s.hint)
	return results, nil
}

func (b *Backend) beginTx(ctx context.Context, tx pgx.Tx) error {
	if tx == nil {
		return core.Invalid("transaction", nil, "is nil")
	}
	if conn := tx.Conn(); conn != nil && conn.PgConn().TxStatus() == 'E' {
		return fmt.Errorf("postgres: %w, nothing was done: roll the transaction back and begin again", ErrTxFailed)
	}
	return b.begin(ctx)
}

// ensureQueues makes the queues that are missing, by another connection: their
// rows are shared by all, and must not be locked until the caller commits.
func (b *Backend) ensureQueues(ctx context.Context, tx pgx.Tx, p *publication) error {
	missing := p.missing
	if p.plain {
		missing = p.missingPlain
	}
	none, err := missing(ctx, tx)
	if err != nil {
		return storeError(ctx, "publish in a transaction", err)
	}
	if !none {
		return nil
	}
	if err := b.makeQueues(ctx, p.queues); err != nil {
		return storeError(ctx, "make queues", err)
	}
	for _, q := range p.queues {
		b.known.Store(q, true)
	}
	p.made = true
	return nil
}

// makeQueues makes queues by a connection of the pool, or else by one of its own: the pool's may
// all be in use by transactions that wait for just this.
func (b *Backend) makeQueues(ctx context.Context, names []string) error {
	sql := b.sql("SELECT rota.queues_for($1::text[])")
	wait, cancel := context.WithTimeout(ctx, poolPatience)
	defer cancel()
	pooled, err := b.pool.Acquire(wait)
	if err == nil {
		defer pooled.Release()
		_, err = pooled.Exec(ctx, sql, names)
		return err
	}
	if ctx.Err() != nil || wait.Err() == nil {
		return err
	}
	select { // one at a time
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	_, err = conn.Exec(ctx, sql, names)
	return err
}
