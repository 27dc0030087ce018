package rotapostgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// many publishes n jobs, whose makings are up to job, in batches.
func (q queue) many(n int, job func(i int) core.NewJob, publish func(core.PublishRequest) ([]core.PublishResult, error)) {
	q.Helper()
	for done := 0; done < n; {
		var req core.PublishRequest
		for ; done < n && len(req.Jobs) < 5000; done++ {
			j := job(done)
			j.Queue = q.name
			req.Jobs = append(req.Jobs, j)
		}
		q.stored(publish(req))
	}
}

func (q queue) publishMany(n int, job func(i int) core.NewJob) {
	q.Helper()
	q.many(n, job, func(req core.PublishRequest) ([]core.PublishResult, error) { return q.b.Publish(q.Context(), req) })
}

// P6: however much a program's open transaction has locked, the work of others is found
// behind it, and what was locked is found when the transaction has ended.
func TestLockedHidesNothing(t *testing.T) {
	t.Parallel()
	delay := 300 * time.Millisecond
	for _, c := range []struct {
		name string
		lock func(q queue, tx pgx.Tx) // makes what is locked
		n    int                      // how many can be claimed then, or some of them
	}{
		{"Arrivals", func(q queue, tx pgx.Tx) {
			q.settleAll(tx, 1000)
			for range 8 { // a publish leaves one arrival of each of its groups
				q.publishMany(1000, func(i int) core.NewJob {
					return core.NewJob{Group: fmt.Sprint("g", i), RunAt: time.Now().Add(-hour)}
				})
			}
		}, 1000},
		{"Replaced", func(q queue, tx pgx.Tx) {
			job := func(i int) core.NewJob {
				return core.NewJob{Dedup: core.Dedup{Key: fmt.Sprint("k", i), OnConflict: core.ReplacePending}}
			}
			q.publishMany(6_000, job)
			q.many(6_000, job, func(req core.PublishRequest) ([]core.PublishResult, error) {
				return q.b.PublishTx(q.Context(), tx, req)
			})
		}, 500},
		{"Scheduled", func(q queue, tx pgx.Tx) {
			q.settleAll(tx, 1)
			q.publishMany(3_000, func(int) core.NewJob { return core.NewJob{Group: "g0", Delay: delay} })
		}, 1},
		{"ScheduledInGroups", func(q queue, tx pgx.Tx) {
			q.settleAll(tx, 500)
			q.publishMany(1_500, func(i int) core.NewJob {
				return core.NewJob{Group: fmt.Sprint("g", i%500), Delay: delay + time.Duration(i)}
			})
		}, 500},
		{"Strict", func(q queue, tx pgx.Tx) {
			q.settleAll(tx, 500)
			q.publishMany(1_500, func(i int) core.NewJob {
				return core.NewJob{Group: fmt.Sprint("g", i%500), Delay: delay + time.Duration(i), Scheduling: core.Strict}
			})
		}, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, openShared(t))
			tx := begin(t, pgx.TxOptions{})
			c.lock(q, tx)
			time.Sleep(2 * delay)
			q.publish("free", "free")
			later := q.jobs("later", "later")
			later.Jobs[0].Delay = delay
			q.stored(q.b.Publish(t.Context(), later))
			strict := q.jobs("strict", "strict")
			strict.Jobs[0].Delay, strict.Jobs[0].Scheduling = delay, core.Strict
			q.stored(q.b.Publish(t.Context(), strict))
			claims, found := 0, 0
			start := time.Now()
			eventually(t, "the jobs behind are found", func() bool {
				claims++
				found += len(q.claim(10))
				return found == 3
			})
			t.Logf("found after %v and %d claims", time.Since(start), claims)
			start = time.Now()
			q.wantNothing()
			t.Logf("a claim takes %v", time.Since(start))
			check(t, tx.Commit(t.Context()))
			eventually(t, "what was locked is found", func() bool {
				found += len(q.claim(500))
				return found >= 3+c.n
			})
		})
	}
}

// settleAll completes the only jobs of groups in a transaction that stays open.
func (q queue) settleAll(tx pgx.Tx, groups int) {
	q.Helper()
	q.publishMany(groups, func(i int) core.NewJob { return core.NewJob{Group: fmt.Sprint("g", i)} })
	leases := q.claim(groups)
	equal(q, "leases", len(leases), groups)
	settled, err := q.b.SettleTx(q.Context(), tx, q.name, outcomes(core.Complete, leases...))
	check(q, err)
	for _, r := range settled {
		check(q, r.Err)
	}
}

// While something that is due can not be had, a worker asks less and less often, up to
// fifty times a second; and as always when the lock is gone.
func TestAsksRarelyWhileLocked(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	next := func() time.Duration {
		res, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 5, Lease: hour})
		check(t, err)
		equal(t, "leases", len(res.Leases), 0)
		return res.Next
	}
	tx := begin(t, pgx.TxOptions{})
	q.settleAll(tx, 1)
	q.publish("g0", "behind") // due, and its group's seat is locked
	first := next()
	if first <= 0 || first > time.Millisecond {
		t.Errorf("asked again after %v at first", first)
	}
	for range 10 {
		next()
	}
	equal(t, "in the end", next(), stuckLast)
	check(t, tx.Commit(t.Context()))
	q.complete(q.wantClaim("behind"))
	equal(t, "of an empty queue", next(), 0)
	req := q.jobs("g1", "later")
	req.Jobs[0].Delay = hour
	q.stored(q.b.Publish(t.Context(), req))
	if n := next(); n < hour-time.Minute || n > hour {
		t.Errorf("the job of an hour later is due in %v", n)
	}
}

// P6: a claim that takes long because the machine is busy leaves nothing aside for later:
// only one that has passed much does.
func TestSlowClaimLeavesNothingAside(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	q := newQueue(t, open(t, url, Options{}))
	_, err := connect(t, url).Exec(t.Context(), `
		ALTER FUNCTION rota.firsts RENAME TO firsts_at_once;
		CREATE FUNCTION rota.firsts(q rota.queue, b bigint[], now bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_sleep(0.05); RETURN rota.firsts_at_once(q, b, now); END $$`)
	check(t, err)
	tx := beginOn(t, url, pgx.TxOptions{})
	q.settleAll(tx, 1)
	q.publish("g0", "behind")
	for range 3 {
		q.wantNothing()
	}
	aside := func() bool { return q.b.bounds.of(q.name).take()[22] != 0 } // see sql/bounds.sql
	equal(t, "something is left aside", aside(), false)
	check(t, tx.Commit(t.Context()))
	q.wantClaim("behind")
	tx = beginOn(t, url, pgx.TxOptions{})
	exec(t, tx, "SELECT FROM rota.seat FOR UPDATE") // so that the arrivals of what is published stay
	for range 1_010 {
		q.publish("g0", "") // an arrival each
	}
	q.wantNothing()
	equal(t, "something is left aside", aside(), true)
	check(t, tx.Rollback(t.Context()))
}

// P6: what is locked in one tier takes nothing from the others, also in claims by turn,
// which give each tier its share.
func TestLockedTierHidesNoOther(t *testing.T) {
	t.Parallel()
	replaced := core.NewJob{Priority: 1}
	for _, c := range []struct {
		name string
		lock func(q queue, tx pgx.Tx)
	}{
		{"Replaced", func(q queue, tx pgx.Tx) {
			q.stored(q.b.Publish(q.Context(), keyed(q, replaced, core.Reject)))
			publishes(replaced, core.ReplacePending, true)(q, tx, nil)
		}},
		{"Arrivals", func(q queue, tx pgx.Tx) {
			q.settleAll(tx, 1)
			for range 30 {
				q.publish("g0", "")
			}
			q.stored(q.b.Publish(q.Context(), keyed(q, replaced, core.Reject)))
			publishes(replaced, core.ReplacePending, true)(q, tx, nil)
		}},
		{"Lease", func(q queue, tx pgx.Tx) {
			req := q.jobs("g", "x")
			req.Jobs[0].Priority = 1
			q.stored(q.b.Publish(q.Context(), req))
			res, err := q.b.Claim(q.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: core.MinLease})
			check(q, err)
			settlesTo(core.Complete, 0)(q, tx, res.Leases)
			time.Sleep(2 * core.MinLease)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, openShared(t))
			tx := begin(t, pgx.TxOptions{})
			c.lock(q, tx)
			time.Sleep(20 * time.Millisecond)
			q.publish("", "free") // without a group, and so without a head start: due behind what is locked
			for range 3 {
				res, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: hour, ByTurn: true})
				check(t, err)
				if len(res.Leases) == 1 {
					equal(t, "job", res.Leases[0].JobID, "free")
					return
				}
			}
			t.Error("the job of the other tier was not found")
		})
	}
}

// What claims have passed they leave alone for ten seconds at most, however often they
// pass more.
func TestPassedForTenSecondsAtMost(t *testing.T) {
	t.Parallel()
	pool := openShared(t).pool
	var first, again, late int64
	check(t, pool.QueryRow(t.Context(), `WITH p AS (SELECT rota.passed(rota.bounds_valid(NULL), 25, 7, rota.us()) AS b)
		SELECT (rota.bounds_valid(b))[25], (rota.bounds_valid(rota.passed(b[:40] || b[41] - 9000000, 26, 8, rota.us())))[25],
			(rota.bounds_valid(rota.passed(b[:40] || b[41] - 10000001, 26, 8, rota.us())))[25] FROM p`).Scan(&first, &again, &late))
	equal(t, "at first", first, 7)
	equal(t, "after nine seconds, when more is passed", again, 7)
	equal(t, "after ten seconds", late, 0)
}
