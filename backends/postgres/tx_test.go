package rotapostgres

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// begin begins a transaction of a program; it is rolled back as the test ends.
func begin(t testing.TB, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	return beginOn(t, testserver.SharedPostgres(t).URL(), opts)
}

// beginOn is begin in another database.
func beginOn(t testing.TB, url string, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := connect(t, url).BeginTx(t.Context(), opts)
	check(t, err)
	return tx
}

// exec does something in a transaction of a program.
func exec(t testing.TB, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	_, err := tx.Exec(t.Context(), sql, args...)
	check(t, err)
}

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

func TestPublishTxCommit(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			q := newQueue(t, openShared(t))
			q.publish("g", "before")
			q.complete(q.wantClaim("before"))
			tx := begin(t, pgx.TxOptions{IsoLevel: level})
			q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("g", "a", "b")))
			q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("", "lone")))
			q.wantNothing()
			equal(t, "state before the commit", q.state("a"), core.StateGone)
			check(t, tx.Commit(t.Context()))
			equal(t, "state after the commit", q.state("a"), core.StatePending)
			q.complete(q.wantClaim("a"))
			lone := q.wantClaim("lone") // it entered before the group was served
			q.complete(q.wantClaim("b"), lone)
			q.wantNothing()
		})
	}
}

func TestPublishTxRollback(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("g", "a")))
	dedup := core.NewJob{Queue: q.name, ID: "d", Dedup: core.Dedup{Key: "k"}}
	q.stored(q.b.PublishTx(t.Context(), tx, core.PublishRequest{Jobs: []core.NewJob{dedup}}))
	check(t, tx.Rollback(t.Context()))
	equal(t, "state after the rollback", q.state("a"), core.StateGone)
	q.wantNothing()
	q.stored(q.b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{dedup}})) // neither id nor key is taken
}

// What an open transaction has published holds nobody up, and is neither lost nor
// stranded though what came later has been claimed, settled and drained before.
func TestPublishTxOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			q := newQueue(t, openShared(t))
			q.publish("g", "first")
			q.complete(q.wantClaim("first"))
			early := begin(t, pgx.TxOptions{IsoLevel: level})
			q.stored(q.b.PublishTx(t.Context(), early, q.jobs("g", "early")))
			for range 3 {
				q.publish("g", "late")
				q.complete(q.wantClaim("late"))
				q.wantNothing()
			}
			q.publish("g", "late1", "late2")
			l := q.wantClaim("late1")
			check(t, early.Commit(t.Context()))
			q.wantNothing() // the group is leased
			q.complete(l)
			q.complete(q.wantClaim("early")) // its place is before the others
			q.complete(q.wantClaim("late2"))
			q.wantNothing()
		})
	}
}

// On a quiet server nothing ends while a transaction is open. What that has published
// is found at once all the same, however often a claim has looked before.
func TestPublishTxOnQuietServer(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).URL()
	q := newQueue(t, open(t, url, Options{Notify: NotifyOff}))
	q.publish("g", "before")
	q.complete(q.wantClaim("before"))
	q.wantNothing()
	var txs []pgx.Tx
	for _, group := range []string{"g", ""} {
		tx, err := connect(t, url).Begin(t.Context())
		check(t, err)
		q.stored(q.b.PublishTx(t.Context(), tx, q.jobs(group, "job"+group)))
		txs = append(txs, tx)
	}
	for range 12 {
		time.Sleep(25 * time.Millisecond)
		q.wantNothing()
	}
	for _, tx := range txs {
		check(t, tx.Commit(t.Context()))
		q.complete(q.claim(1)...)
	}
	equal(t, "state of the first", q.state("jobg"), core.StateGone)
	equal(t, "state of the second", q.state("job"), core.StateGone)
}

// A transaction whose snapshot is older than the queue can not see it, and says so.
func TestPublishTxNewQueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	tx := begin(t, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	_, err := q.b.PublishTx(t.Context(), tx, q.jobs("g", "a"))
	wantError(t, err, ErrTxConflict, "begin again")
	check(t, tx.Rollback(t.Context()))
	tx = begin(t, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("g", "a")))
	check(t, tx.Commit(t.Context()))
	q.complete(q.wantClaim("a"))
}

// The same with many publishers whose transactions overlap in every way.
func TestPublishTxOverlapping(t *testing.T) {
	t.Parallel()
	b := openShared(t)
	q := newQueue(t, b)
	const publishers, each = 6, 40
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pool := newPool(t, testserver.SharedPostgres(t).URL())
	var wg sync.WaitGroup
	errs := make([]error, publishers)
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				errs[p] = errors.Join(errs[p], pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					for k := range 2 { // in opposite orders of groups
						group := string(rune('a' + (p*k+(1-k)*(p+1)+i)%5))
						if _, err := b.PublishTx(ctx, tx, core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, Group: group}}}); err != nil {
							return err
						}
						time.Sleep(time.Duration((p*7+i*3)%4) * time.Millisecond)
					}
					if i%4 == 3 {
						return errRollback
					}
					return nil
				}))
				if errors.Is(errs[p], errRollback) {
					errs[p] = nil
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	got := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		for leases := q.claim(5); len(leases) > 0; leases = q.claim(5) {
			got += len(leases)
			q.complete(leases...)
		}
	}
	check(t, errors.Join(errs...))
	equal(t, "jobs claimed", got, publishers*each*3/4*2)
}

var errRollback = errors.New("roll it back")

// Publishers that meet the same groups in opposite orders do not wait for each
// other, nor claims and settles for them.
func TestPublishTxLocksNothingShared(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("a", "a0")
	q.publish("b", "b0")
	held := q.claim(1)
	one, two := begin(t, pgx.TxOptions{}), begin(t, pgx.TxOptions{})
	for _, tx := range []pgx.Tx{one, two} {
		_, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '2s'")
		check(t, err)
	}
	q.stored(q.b.PublishTx(t.Context(), one, q.jobs("a", "a1")))
	q.stored(q.b.PublishTx(t.Context(), two, q.jobs("b", "b1")))
	q.stored(q.b.PublishTx(t.Context(), one, q.jobs("b", "b2")))
	q.stored(q.b.PublishTx(t.Context(), two, q.jobs("a", "a2")))
	q.complete(held...)
	q.complete(q.claim(2)...)
	check(t, one.Commit(t.Context()))
	check(t, two.Commit(t.Context()))
	for n := 0; n < 4; {
		leases := q.claim(2)
		if len(leases) == 0 {
			t.Fatalf("%d of 4 jobs were claimed", n)
		}
		n += len(leases)
		q.complete(leases...)
	}
}

func TestTxAlreadyFailed(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a", "b")
	l := q.wantClaim("a")
	tx := begin(t, pgx.TxOptions{})
	_, err := tx.Exec(t.Context(), "SELECT 1/0")
	if err == nil {
		t.Fatal("the division succeeded")
	}
	_, err = q.b.PublishTx(t.Context(), tx, q.jobs("g", "c"))
	wantError(t, err, ErrTxFailed, "roll the transaction back")
	_, err = q.b.SettleTx(t.Context(), tx, q.name, outcomes(core.Complete, l))
	wantError(t, err, ErrTxFailed, "roll the transaction back")
	_, err = q.b.PublishTx(t.Context(), nil, q.jobs("g", "c"))
	wantError(t, err, core.ErrInvalid, "transaction")
	check(t, tx.Rollback(t.Context()))
	equal(t, "state", q.state("c"), core.StateGone)
	q.complete(l)
}

// A worker's own writes and the completion of its job are one.
func TestSettleTx(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			q := newQueue(t, openShared(t))
			conn := connect(t, testserver.SharedPostgres(t).URL())
			table := pgx.Identifier{testserver.UniqueName(t)}.Sanitize()
			_, err := conn.Exec(t.Context(), "CREATE TABLE "+table+" (job text PRIMARY KEY)")
			check(t, err)
			defer func() { _, _ = conn.Exec(context.Background(), "DROP TABLE "+table) }()
			q.publish("g", "a", "b")
			l := q.wantClaim("a")
			work := func(l core.Lease) (pgx.Tx, core.SettleResult) {
				tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				check(t, err)
				_, err = tx.Exec(t.Context(), "INSERT INTO "+table+" VALUES ($1) ON CONFLICT DO NOTHING", l.JobID)
				check(t, err)
				res, err := q.b.SettleTx(t.Context(), tx, q.name, outcomes(core.Complete, l))
				check(t, err)
				return tx, res[0]
			}
			rows := func() (n int) {
				check(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
				return n
			}

			tx, res := work(l)
			check(t, res.Err)
			check(t, tx.Rollback(t.Context()))
			equal(t, "rows after the rollback", rows(), 0)
			equal(t, "state after the rollback", q.state("a"), core.StateRunning)

			tx, res = work(l)
			check(t, res.Err)
			q.publish("g", "c") // it joins the line behind the back of the transaction
			q.wantNothing()
			check(t, tx.Commit(t.Context()))
			equal(t, "rows after the commit", rows(), 1)
			equal(t, "state after the commit", q.state("a"), core.StateGone)

			tx, res = work(l) // again: its lease is over
			wantError(t, res.Err, core.ErrLeaseLost, "a")
			check(t, tx.Rollback(t.Context()))

			l = q.wantClaim("b")
			tx, res = work(l)
			check(t, res.Err)
			check(t, tx.Commit(t.Context()))
			q.complete(q.wantClaim("c"))
			q.wantNothing()
		})
	}
}

// Jobs that are published while a transaction drains their group are found,
// whatever its snapshot says.
func TestSettleTxMeetsPublish(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			q := newQueue(t, openShared(t))
			for _, group := range []string{"g", ""} {
				q.publish(group, "a")
				l := q.wantClaim("a")
				tx := begin(t, pgx.TxOptions{IsoLevel: level})
				_, err := tx.Exec(t.Context(), "SELECT 1") // takes the snapshot
				check(t, err)
				q.publish(group, "b")
				res, err := q.b.SettleTx(t.Context(), tx, q.name, outcomes(core.Complete, l))
				check(t, err)
				check(t, res[0].Err)
				q.publish(group, "c")
				if group != "" {
					q.wantNothing()
				}
				check(t, tx.Commit(t.Context()))
				q.complete(q.wantClaim("b"))
				q.complete(q.wantClaim("c"))
				q.wantNothing()
			}
		})
	}
}

// Workers are told of what a transaction has published once it has committed.
func TestPublishTxWakes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wakes, err := openShared(t).Wakes(ctx, q.name)
	check(t, err)
	q.publish("g", "a")
	q.complete(q.wantClaim("a"))
	q.wantNothing()
	for len(wakes) > 0 {
		<-wakes
	}
	time.Sleep(50 * time.Millisecond) // hints of the first publish
	for len(wakes) > 0 {
		<-wakes
	}
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(ctx, tx, q.jobs("g", "b")))
	check(t, tx.Commit(ctx))
	select {
	case w := <-wakes:
		equal(t, "hint", w, core.Wake{Kind: core.WakeReady, Queue: q.name})
	case <-ctx.Done():
		t.Fatal("no hint of a publish in a transaction")
	}
	q.complete(q.wantClaim("b"))
}
