package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// deleting deletes the queue beside the test, and returns as that waits for tx. It gives a function
// that awaits the end, which is to be this error.
func (q queue) deleting(tx pgx.Tx, force bool, want error) func() {
	q.Helper()
	deleted := later(q, func() error {
		if err := q.b.DeleteQueue(q.Context(), q.name, force); !errors.Is(err, want) {
			return fmt.Errorf("delete: got error %w, want %w", err, want)
		}
		return nil
	})
	eventually(q, "the deletion waits", q.waitsFor(tx))
	return deleted
}

// P2: a job without a group that comes while its queue is deleted leaves no lane behind.
func TestDeleteQueueMeetsPublish(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	l := q.wantClaim("a")
	tx := begin(t, pgx.TxOptions{})
	settlesTo(core.Complete, 0)(q, tx, []core.Lease{l})
	deleted := q.deleting(tx, true, nil)
	q.publish("", "x")
	check(t, tx.Rollback(t.Context()))
	deleted()
	if q.state("x") == core.StateGone { // else it came after the deletion
		q.publish("", "x")
	}
	leases := q.claim(10)
	equal(t, "leases", len(leases), 1)
	equal(t, "job", leases[0].JobID, "x")
}

// A lane that changes while its queue is deleted does not stay behind.
func TestDeleteQueueMeetsExtend(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	l := q.wantClaim("a")
	// An Extend that takes its time to commit.
	tx := begin(t, pgx.TxOptions{})
	refs := refsOf(1)
	refs.put(0, l.LeaseRef)
	var out []int64
	check(t, tx.QueryRow(t.Context(), `SELECT rota.extend($1::text, $2::text[], $3::text[], $4::int8[], $5::int8[], $6::tid[], $7::int8)`,
		q.name, refs.group, refs.id, refs.fence, refs.salt, refs.tid, hour.Microseconds()).Scan(&out))
	deleted := q.deleting(tx, true, nil)
	check(t, tx.Commit(t.Context()))
	deleted()
	q.publish("g", "b")
	took, ok := q.awaitClaim(5*time.Second, "b")
	if !ok {
		info, err := q.b.Group(t.Context(), q.name, "g")
		t.Errorf("b not claimed in %v: group %+v %v", took, info, err)
		if info.Lease != nil {
			t.Errorf("its lease: %+v", *info.Lease)
		}
	}
}

// P4: a job that comes while its queue is deleted without force is not deleted.
func TestDeleteQueueKeepsNewJobs(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("p", "p1")
	q.complete(q.wantClaim("p1"))
	check(t, q.b.ActOnGroup(t.Context(), q.name, "p", core.PauseGroup))
	tx := begin(t, pgx.TxOptions{}) // stands for any call that has the lane for a moment
	_, err := tx.Exec(t.Context(), "SELECT 1 FROM rota.lane l JOIN rota.queue q ON q.id = l.queue WHERE q.name = $1 FOR UPDATE OF l", q.name)
	check(t, err)
	deleted := q.deleting(tx, false, core.ErrQueueNotEmpty)
	q.publish("g", "x")
	check(t, tx.Rollback(t.Context()))
	deleted()
	equal(t, "state", q.state("x"), core.StatePending)
}

// P12: a job that comes as the jobs of its queue are deleted, and stays, keeps its key.
func TestDeleteQueueKeepsNewKeys(t *testing.T) {
	t.Parallel()
	eventually(t, "a job outlives a deletion", func() bool { // one that is begun anew deletes it
		q := newQueue(t, openShared(t))
		q.publish("g", "a")
		tx := begin(t, pgx.TxOptions{})
		_, err := tx.Exec(t.Context(), "SELECT 1 FROM rota.job j JOIN rota.queue q ON q.id = j.queue WHERE q.name = $1 FOR UPDATE OF j", q.name)
		check(t, err)
		deleted := q.deleting(tx, true, nil)
		q.stored(q.b.Publish(t.Context(), keyed(q, core.NewJob{ID: "x"}, core.Reject)))
		check(t, tx.Rollback(t.Context()))
		deleted()
		if q.state("x") == core.StateGone {
			return false
		}
		res, err := q.b.Publish(t.Context(), keyed(q, core.NewJob{ID: "y"}, core.Reject))
		check(t, err)
		wantError(t, res[0].Err, core.ErrDuplicate, "")
		q.complete(q.wantClaim("x"))
		return true
	})
}

// P4: publishes, a worker, and deletions without force at once.
func TestDeleteQueueStorm(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	acked, done := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if i%20 == 0 { // else there is never a moment without jobs
				time.Sleep(rand.N(40 * time.Millisecond))
			}
			id := fmt.Sprint("j", i)
			res, err := q.b.Publish(context.Background(), q.jobs(fmt.Sprint("g", i%5), id))
			if err == nil && res[0].Err == nil {
				mu.Lock()
				acked[id] = true
				mu.Unlock()
			}
		}
	})
	work := func() int {
		res, err := q.b.Claim(context.Background(), core.ClaimRequest{Queue: q.name, Max: 10, Lease: hour})
		if err != nil || len(res.Leases) == 0 {
			return 0
		}
		st, err := q.b.Settle(context.Background(), q.name, outcomes(core.Complete, res.Leases...))
		if err != nil {
			t.Errorf("settle: %v", err)
			return 0
		}
		mu.Lock()
		defer mu.Unlock()
		for i, l := range res.Leases {
			if st[i].Err != nil {
				t.Errorf("settle of %s: %v", l.JobID, st[i].Err)
			}
			done[l.JobID] = true
		}
		return len(res.Leases)
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				work()
			}
		})
	}
	var deletions, refused atomic.Int64
	wg.Go(func() {
		for ctx.Err() == nil {
			switch err := q.b.DeleteQueue(context.Background(), q.name, false); {
			case err == nil:
				deletions.Add(1)
			case errors.Is(err, core.ErrQueueNotEmpty), errors.Is(err, core.ErrNotFound):
				refused.Add(1)
			default:
				t.Errorf("delete: %v", err)
			}
		}
	})
	time.Sleep(3 * time.Second)
	eventually(t, "deletions and publishes meet", func() bool { return min(deletions.Load(), refused.Load()) > 0 || t.Failed() })
	cancel()
	wg.Wait()
	for i := 0; i < 50; i++ {
		if work() == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	lost := 0
	for id := range acked {
		if !done[id] {
			lost++
			if lost <= 3 {
				t.Errorf("%s was acknowledged, and is neither done nor there: state %v", id, q.state(id))
			}
		}
	}
	t.Logf("%d acknowledged, %d done, %d deletions, %d refused, %d lost", len(acked), len(done), deletions.Load(), refused.Load(), lost)
}

// P12: a publish takes over the key of a finished job, and commits while the deletion of the queue, which
// has not seen its job, waits for the key: the job keeps it.
func TestDeleteQueueKeepsKeysTakenOver(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.stored(q.b.Publish(t.Context(), keyed(q, core.NewJob{ID: "old", Retention: hour}, core.Reject)))
	q.complete(q.wantClaim("old"))
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), tx, keyed(q, core.NewJob{ID: "new"}, core.Reject)))
	deleted := q.deleting(tx, true, nil)
	check(t, tx.Commit(t.Context()))
	deleted()
	equal(t, "state of the new job", q.state("new"), core.StatePending)
	res, err := q.b.Publish(t.Context(), keyed(q, core.NewJob{ID: "another"}, core.Reject))
	check(t, err)
	wantError(t, res[0].Err, core.ErrDuplicate, "")
}

// P2: while the deletion of a queue sees to the lanes that have come since, a claim leases one of them: it
// keeps its lease.
func TestDeleteQueueMeetsClaimOfNewJob(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	q := newQueue(t, open(t, url, Options{}))
	makeLane := func(group string) {
		t.Helper()
		_, err := q.b.pool.Exec(t.Context(), "SELECT rota.lock_lane(q, $1, true) FROM rota.queue q", group)
		check(t, err)
	}
	// head_changed waits at a gate, and the deletion may wait as long as the test wants.
	_, err := q.b.pool.Exec(t.Context(), `ALTER FUNCTION rota.head_changed RENAME TO head_changed_at_once;
		CREATE FUNCTION rota.head_changed(l rota.lane, now bigint) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			WHILE NOT pg_try_advisory_xact_lock(88) LOOP PERFORM pg_sleep(0.005); END LOOP;
			PERFORM rota.head_changed_at_once(l, now);
		END $$;
		CREATE OR REPLACE FUNCTION rota.hurry() RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$`)
	check(t, err)
	q.publish("g", "old")
	jobs, lane, gate := beginOn(t, url, pgx.TxOptions{}), beginOn(t, url, pgx.TxOptions{}), beginOn(t, url, pgx.TxOptions{})
	exec(t, jobs, "SELECT FROM rota.job FOR UPDATE")
	deleted := q.deleting(jobs, true, nil) // it has deleted the lanes
	q.publish("m", "m1")
	makeLane("m")
	exec(t, lane, "SELECT FROM rota.lane WHERE key = 'm' FOR UPDATE")
	q.publish("x", "x1")
	check(t, jobs.Rollback(t.Context()))
	eventually(t, "the deletion waits for a new lane", q.waitsFor(lane))
	makeLane("x")
	exec(t, gate, "SELECT pg_advisory_xact_lock(88)")
	check(t, lane.Rollback(t.Context()))
	var ids []string
	for range 3 {
		for _, l := range q.claim(10) {
			ids = append(ids, l.JobID)
		}
		time.Sleep(50 * time.Millisecond)
	}
	check(t, gate.Rollback(t.Context()))
	deleted()
	for _, l := range q.claim(10) {
		ids = append(ids, l.JobID)
	}
	slices.Sort(ids)
	equal(t, "jobs handed out", fmt.Sprint(ids), "[m1 x1]")
}
