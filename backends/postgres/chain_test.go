package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// later runs a call that has to wait, and gives a function that fails the test unless
// the call succeeds in the end.
func later(q queue, call func() error) func() {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return func() {
		q.Helper()
		select {
		case err := <-done:
			check(q, err)
		case <-time.After(patience):
			q.Fatalf("the call did not come back in %v", patience)
		}
	}
}

// A call that has to wait for an open transaction of a program does not make others
// wait with what it has locked itself.
func TestWaitingCallHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := open(t, testserver.SharedPostgres(t).URL(), Options{})
	impatient := open(t, testserver.SharedPostgres(t).URL()+"&lock_timeout=2000", Options{})
	for name, call := range map[string]func(q queue) error{
		"Move": func(q queue) error {
			res, err := q.b.Move(q.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"h2", "a"}, To: core.StateCancelled})
			return errors.Join(append(res.Errs, err)...)
		},
		"Publish": func(q queue) error {
			replace := keyed(q, core.NewJob{Group: "h"}, core.ReplacePending)
			replace.Jobs = append(replace.Jobs, replace.Jobs[0])
			replace.Jobs[0].Dedup.Key = "h"
			res, err := q.b.Publish(q.Context(), replace)
			if err == nil && (!res[0].Replaced || !res[1].Replaced) {
				err = errors.New("nothing was replaced")
			}
			return err
		},
		"Update": func(q queue) error {
			return q.b.Update(q.Context(), q.name, "a", core.Patch{Payload: []byte("x")}, core.StateSet(0))
		},
		"DeleteQueue": func(q queue) error { return q.b.DeleteQueue(q.Context(), q.name, true) },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, b)
			q.publish("h", "h1", "h2")
			lease := q.wantClaim("h1")
			inH := keyed(q, core.NewJob{ID: "h3", Group: "h", Delay: hour}, core.Reject)
			inH.Jobs[0].Dedup.Key = "h"
			q.stored(b.Publish(t.Context(), inH))
			q.publish("g", "g1")
			q.stored(b.Publish(t.Context(), keyed(q, core.NewJob{ID: "a", Group: "g"}, core.Reject)))
			running := q.wantClaim("g1")
			tx := begin(t, pgx.TxOptions{})
			publishes(inGroup, core.ReplacePending, true)(q, tx, nil)
			wait := later(q, func() error { return call(q) })
			eventually(t, "the call waits", q.waitsFor(tx))
			other := queue{t, impatient, q.name}
			for range 5 { // at any moment of its tries
				for {
					ext, err := other.b.Extend(t.Context(), q.name, refs([]core.Lease{lease, running}), 2*hour)
					check(t, err)
					check(t, errors.Join(ext[0].Err, ext[1].Err))
					if time.Until(ext[0].Until) > hour+hour/2 && time.Until(ext[1].Until) > hour+hour/2 {
						break
					}
				}
				other.publish("new", "")
			}
			other.complete(lease, running)
			check(t, tx.Commit(t.Context()))
			wait()
		})
	}
}

// A settle of two leases, one of which an open transaction settles too, ends the
// other at once.
func TestSettleBesideSettleTx(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		q := newQueue(t, openShared(t))
		q.publish("g", "a")
		q.publish("h", "b", "c")
		leases := q.claim(2)
		equal(t, "leases", len(leases), 2)
		tx := begin(t, pgx.TxOptions{})
		settlesTo(core.Complete, 0)(q, tx, leases[:1])
		var res []core.SettleResult
		wait := later(q, func() (err error) {
			res, err = q.b.Settle(t.Context(), q.name, outcomes(core.Complete, leases...))
			return err
		})
		eventually(t, "the settle waits", q.waitsFor(tx))
		q.complete(q.wantClaim("c"))
		want := error(nil)
		if commit {
			check(t, tx.Commit(t.Context()))
			want = core.ErrLeaseLost
		} else {
			check(t, tx.Rollback(t.Context()))
		}
		wait()
		check(t, res[1].Err)
		if !errors.Is(res[0].Err, want) {
			t.Fatalf("the lease of the transaction: got error %v, want %v", res[0].Err, want)
		}
		equal(t, "state", q.state("a"), core.StateGone)
		q.wantNothing()
	}
}

// Transactions that use the same key wait for each other and do not deadlock,
// however often each uses it.
func TestSameKeyWaits(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	for _, n := range []core.NewJob{inGroup, scheduled, lone, loneLater} {
		one, two := begin(t, pgx.TxOptions{}), begin(t, pgx.TxOptions{})
		n.ID = "a"
		q.stored(q.b.PublishTx(t.Context(), one, keyed(q, n, core.ReplacePending)))
		n.ID = ""
		wait := later(q, func() error {
			for range 2 {
				res, err := q.b.PublishTx(t.Context(), two, keyed(q, n, core.ReplacePending))
				if err != nil || !res[0].Replaced {
					return errors.Join(errors.New("nothing was replaced"), err)
				}
			}
			return two.Commit(t.Context())
		})
		eventually(t, "the second waits", q.waitsFor(one))
		q.stored(q.b.PublishTx(t.Context(), one, keyed(q, n, core.ReplacePending)))
		q.stored(q.b.PublishTx(t.Context(), one, keyed(q, n, core.ReturnExisting)))
		check(t, one.Commit(t.Context()))
		wait()
		res, err := q.b.Move(t.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"a"}, To: core.StateGone})
		check(t, err)
		check(t, res.Errs[0])
	}
}

// A job that is being replaced is due, but workers are not told to ask for it
// without a pause. That is counted from the end of the claim, which may take longer.
func TestReplacedHeadIsNotAskedForAtOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url, Options{})
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), `CREATE OR REPLACE FUNCTION rota.idle(q rota.queue) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(0.05)'`)
	check(t, err)
	for _, n := range []core.NewJob{inGroup, lone} {
		q := newQueue(t, b)
		q.stored(q.b.Publish(t.Context(), keyed(q, n, core.Reject)))
		tx, err := conn.Begin(t.Context())
		check(t, err)
		publishes(n, core.ReplacePending, true)(q, tx, nil)
		for i := range 7 { // the first makes the lane, the others find it
			res, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: hour, Owner: "test"})
			check(t, err)
			equal(t, "leases", len(res.Leases), 0)
			equal(t, fmt.Sprintf("pause for group %q after claim %d", n.Group, i+1), res.Next, min(time.Millisecond<<i, stuckLast))
		}
		check(t, tx.Commit(t.Context()))
		equal(t, "leases", len(q.claim(1)), 1)
	}
}

// Versions of one job replace each other in transactions, while a worker takes what
// there is: each version starts exactly once, unless the next has replaced it.
func TestReplaceMeetsClaim(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"g", ""} {
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
			t.Run(string(level)+"/"+group, func(t *testing.T) {
				q := newQueue(t, openShared(t))
				q.publish("first", "first")
				q.complete(q.wantClaim("first"))
				conn := connect(t, testserver.SharedPostgres(t).URL())
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				const versions = 300
				var started []string
				stop := make(chan struct{})
				wait := later(q, func() error {
					for last := false; ; {
						res, err := q.b.Claim(ctx, core.ClaimRequest{Queue: q.name, Max: 2, Lease: hour, Owner: "test"})
						if err != nil {
							return err
						}
						for _, l := range res.Leases {
							started = append(started, string(l.Job.Payload))
							if _, err := q.b.Settle(ctx, q.name, outcomes(core.Complete, l)); err != nil {
								return err
							}
						}
						if last && len(res.Leases) == 0 {
							return nil
						}
						select {
						case <-stop:
							last = true
						default:
						}
						time.Sleep(rand.N(4 * time.Millisecond))
					}
				})
				var want []string
				replaced := 0
				for i := 0; i < versions; {
					n := core.NewJob{Group: group, Payload: []byte(strconv.Itoa(i))}
					if i%5 == 4 {
						n.Delay = time.Millisecond
					}
					var res []core.PublishResult
					err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) (err error) {
						_, err = tx.Exec(ctx, "SELECT 1")
						if err == nil {
							res, err = q.b.PublishTx(ctx, tx, keyed(q, n, core.ReplacePending))
						}
						time.Sleep(rand.N(3 * time.Millisecond))
						return err
					})
					if errors.Is(err, ErrTxConflict) {
						continue
					}
					check(t, err)
					i++
					if errors.Is(res[0].Err, core.ErrDuplicate) {
						continue
					}
					check(t, res[0].Err)
					if res[0].Replaced {
						replaced++
						want = want[:len(want)-1]
					}
					want = append(want, string(n.Payload))
				}
				close(stop)
				wait()
				for range 2 {
					for _, l := range q.claim(10) {
						started = append(started, string(l.Job.Payload))
					}
				}
				t.Logf("%d versions started, %d were replaced", len(started), replaced)
				equal(t, "versions started", len(started), len(want))
				for i := range want {
					equal(t, "version", started[i], want[i])
				}
			})
		}
	}
}
