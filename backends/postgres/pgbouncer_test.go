package rotapostgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/backendtest"
	"github.com/rota-queue/rota/internal/testserver"
)

// throughPgBouncer starts a PgBouncer in transaction mode with fewer sessions than
// the clients have connections, so that no two transactions of a client can count
// on the same session, and gives what opens the backend through it.
func throughPgBouncer(t *testing.T, opts Options) (bouncer string, open func(t testing.TB) *Backend) {
	t.Helper()
	// It stands outside of t, so that tests which use it may be parallel.
	bouncer = testserver.PgBouncer(t, testserver.SharedPostgres(t).URL(), 5).URL()
	return bouncer, func(t testing.TB) *Backend {
		t.Helper()
		b, err := Open(context.Background(), bouncer+"&pool_max_conns=6&default_query_exec_mode=exec", opts)
		check(t, err)
		return b
	}
}

func direct(t testing.TB) Options {
	return Options{ListenURL: testserver.SharedPostgres(t).URL()}
}

// All promises hold through PgBouncer in transaction mode, with a connection of its
// own to listen.
func TestPgBouncerConformance(t *testing.T) {
	url, _ := throughPgBouncer(t, direct(t))
	h := pooled(t, url+"&pool_max_conns=12&default_query_exec_mode=exec", direct(t))
	h.Slow = true // smaller backlogs: TestConformance has the large ones
	backendtest.Run(t, h)
}

// Without hints everything works by polling, too.
func TestPgBouncerStorms(t *testing.T) {
	_, open := throughPgBouncer(t, Options{Notify: NotifyOff})
	h := harness(open)
	h.Slow = true // smaller storms: TestStorms has the large ones
	backendtest.RunStorms(t, h)
}

// Calls that are cancelled at any moment: a cancel request that its client gave up
// made PgBouncer 1.18 exit, which the end of this test would tell of.
func TestPgBouncerCancelled(t *testing.T) {
	t.Parallel()
	_, open := throughPgBouncer(t, Options{Notify: NotifyOff})
	b := open(t)
	defer func() { check(t, b.Close()) }()
	q := newQueue(t, b)
	q.publish("g", "a")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Millisecond))
				_, _ = b.Publish(ctx, q.jobs("g", ""))
				cancel()
			}
		})
	}
	wg.Wait()
	q.publish("g", "b")
}

// The caller's transactions go through it too.
func TestPgBouncerTx(t *testing.T) {
	t.Parallel()
	url, open := throughPgBouncer(t, Options{Notify: NotifyOff})
	b := open(t)
	defer func() { check(t, b.Close()) }()
	q := newQueue(t, b)
	pool := newPool(t, url+"&default_query_exec_mode=exec")
	check(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := b.PublishTx(t.Context(), tx, q.jobs("g", "a", "b"))
		return err
	}))
	l := q.wantClaim("a")
	check(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		res, err := b.SettleTx(t.Context(), tx, q.name, outcomes(core.Complete, l))
		check(t, err)
		return res[0].Err
	}))
	q.complete(q.wantClaim("b"))
}

// With ListenURL a hint reaches a worker; through PgBouncer itself none would.
func TestPgBouncerWakes(t *testing.T) {
	t.Parallel()
	_, open := throughPgBouncer(t, direct(t))
	b, other := open(t), open(t)
	defer func() { check(t, b.Close()) }()
	defer func() { check(t, other.Close()) }()
	q := newQueue(t, b)
	q.publish("g", "a")
	q.complete(q.wantClaim("a"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wakes, err := b.Wakes(ctx, q.name)
	check(t, err)
	q.wantNothing() // says that a worker waits
	theirs := queue{t, other, q.name}
	theirs.publish("g", "b")
	select {
	case w := <-wakes:
		equal(t, "queue of the hint", w.Queue, q.name)
	case <-ctx.Done():
		t.Fatal("no hint came")
	}
}

// What the driver prepares by default belongs to a session, and the next transaction
// may get another one: a call that meets that says what to do and did nothing. (A
// PgBouncer from 1.21 on can be set up to prepare for its clients, and then nothing
// fails.)
func TestPgBouncerPrepared(t *testing.T) {
	t.Parallel()
	url, _ := throughPgBouncer(t, Options{})
	b, err := New(t.Context(), newPool(t, url+"&pool_max_conns=8"), Options{Notify: NotifyOff})
	if err != nil {
		wantError(t, err, core.ErrMisconfigured, "default_query_exec_mode=exec")
		return
	}
	defer func() { check(t, b.Close()) }()
	q := newQueue(t, b)
	const publishers, each = 4, 20
	var stored, refused atomic.Int64
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for range each {
				_, err := b.Publish(t.Context(), q.jobs("g", ""))
				switch {
				case err == nil:
					stored.Add(1)
				case errors.Is(err, core.ErrMisconfigured) && strings.Contains(err.Error(), "default_query_exec_mode=exec"):
					refused.Add(1)
				default:
					t.Errorf("publish: %v", err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d publishes were stored, %d refused", stored.Load(), refused.Load())
	var n int64
	check(t, connect(t, testserver.SharedPostgres(t).URL()).QueryRow(t.Context(),
		"SELECT count(*) FROM rota.job j JOIN rota.queue q ON q.id = j.queue WHERE q.name = $1", q.name).Scan(&n))
	equal(t, "jobs", n, stored.Load())
}
