package rotapostgres

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/internal/testserver"
)

// A queue is made for a transaction of the program even when the whole pool is in use, by
// transactions which wait for that.
func TestPublishTxOnAFullPool(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testserver.SharedPostgres(t).URL()+"&pool_max_conns=1")
	b, err := New(t.Context(), pool, Options{Notify: NotifyOff})
	check(t, err)
	defer func() { check(t, b.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q := newQueue(t, b)
	check(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		q.stored(b.PublishTx(ctx, tx, q.jobs("g", "a")))
		return nil
	}))
	q.wantClaim("a")
}

// A transaction that the server knows nothing of, as after a failover that lost it, does
// not keep the hints of others back.
func TestHintsBesideALostTransaction(t *testing.T) {
	t.Parallel()
	b := openShared(t)
	w := &watcher{b: b}
	tx := begin(t, pgx.TxOptions{})
	var xact int64
	check(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::int8").Scan(&xact))
	check(t, tx.Commit(t.Context()))
	sent := 0
	until := time.Now().Add(hour)
	w.waiting = []*watched{
		{xact: 1 << 50, until: until, send: func() { t.Error("the lost transaction is taken for committed") }},
		{xact: xact, until: until, send: func() { sent++ }},
	}
	w.look(t.Context(), slices.Clone(w.waiting))
	equal(t, "hints after the commit", sent, 1)
	equal(t, "transactions still watched", len(w.waiting), 1)
}
