package rotapostgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// openImpatient opens the shared server; a call that waits for ever fails.
func openImpatient(t *testing.T) *Backend {
	t.Helper()
	return open(t, testserver.SharedPostgres(t).URL()+"&statement_timeout=20000", Options{})
}

// expire lets a lease run out.
func (q queue) expire(l core.Lease) {
	q.Helper()
	ext, err := q.b.Extend(q.Context(), q.name, []core.LeaseRef{l.LeaseRef}, core.MinLease)
	check(q, err)
	check(q, ext[0].Err)
	eventually(q, "the lease runs out", func() bool {
		now, err := q.b.Now(q.Context())
		check(q, err)
		return now.After(ext[0].Until)
	})
}

// waitsFor tells whether anybody waits for what the transaction has locked.
func (q queue) waitsFor(tx pgx.Tx) func() bool {
	pid := tx.Conn().PgConn().PID()
	return func() (waits bool) {
		check(q, q.b.pool.QueryRow(q.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))", int(pid)).Scan(&waits))
		return waits
	}
}

// A claim meets the cancellation of a job whose lease has run out: it does not wait
// for it, and the next one ends the job instead of handing it out.
func TestClaimMeetsCancel(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openImpatient(t))
	q.publish("g", "a", "b")
	l := q.wantClaim("a")
	q.expire(l)
	cancel := begin(t, pgx.TxOptions{})
	_, err := cancel.Exec(t.Context(), "SELECT * FROM rota.move($1, 7, ARRAY['a'], 0, NULL, 1)", q.name)
	check(t, err)
	q.wantNothing()
	check(t, cancel.Commit(t.Context()))
	q.complete(q.wantClaim("b"))
	equal(t, "state of the cancelled job", q.state("a"), core.StateCancelled)
	res, err := q.b.Settle(t.Context(), q.name, outcomes(core.Complete, l))
	check(t, err)
	wantError(t, res[0].Err, core.ErrLeaseLost, "")
}

// The other way round: the cancellation waits for the claim that takes the job over,
// and then it is the new holder who is asked to end it.
func TestCancelMeetsClaim(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openImpatient(t))
	q.publish("g", "a")
	l := q.wantClaim("a")
	q.expire(l)
	claim := begin(t, pgx.TxOptions{})
	const salt = 7
	var fence int64
	var tid pgtype.TID
	check(t, claim.QueryRow(t.Context(), "SELECT o_fence, o_tid FROM rota.claim($1, 1, 0, 3600000000, 'other', $2, NULL, false) WHERE o_ord >= 0", q.name, salt).Scan(&fence, &tid))
	moved := make(chan error, 1)
	go func() {
		res, err := q.b.Move(t.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"a"}, To: core.StateCancelled})
		if err == nil {
			err = errors.Join(res.Errs...)
		}
		moved <- err
	}()
	eventually(t, "the cancellation waits", q.waitsFor(claim))
	check(t, claim.Commit(t.Context()))
	check(t, <-moved)
	equal(t, "state", q.state("a"), core.StateRunning)
	holder := l.LeaseRef
	holder.Token = token(fence, salt, tid)
	ext, err := q.b.Extend(t.Context(), q.name, []core.LeaseRef{l.LeaseRef, holder}, hour)
	check(t, err)
	wantError(t, ext[0].Err, core.ErrLeaseLost, "")
	check(t, ext[1].Err)
	equal(t, "the new holder is asked to end the job", ext[1].CancelRequested, true)
	res, err := q.b.Settle(t.Context(), q.name, []core.Outcome{{Lease: holder, Action: core.Retry}})
	check(t, err)
	check(t, res[0].Err)
	equal(t, "state", res[0].State, core.StateCancelled)
}

// P8: a claim leaves a group that another transaction has locked to the next claim,
// whatever it comes for: its head, a job that joins, or one that stands in line
// before it is due. Nor does it wait for a lane that was made, and locked, after it
// had looked for the seat.
func TestClaimWaitsForNoLane(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openImpatient(t))
	q.publish("g", "a", "b")
	l := q.wantClaim("a")
	q.stored(q.b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{
		{Queue: q.name, Group: "g", Delay: hour, Scheduling: core.Strict},
		{Queue: q.name, Group: "g", Delay: time.Millisecond},
		{Queue: q.name, Group: "h", ID: "free"},
	}}))
	lock := begin(t, pgx.TxOptions{})
	res, err := q.b.SettleTx(t.Context(), lock, q.name, outcomes(core.Complete, l))
	check(t, err)
	check(t, res[0].Err)
	time.Sleep(2 * time.Millisecond) // the delay of the one that joins
	claimed, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 10, Lease: hour})
	check(t, err)
	equal(t, "leases", len(claimed.Leases), 1)
	equal(t, "job", claimed.Leases[0].JobID, "free")
	var made bool
	check(t, q.b.pool.QueryRow(t.Context(), "SELECT rota.make_lane(q, 'g', rota.head(q.id, 'g', 0)) FROM rota.queue q WHERE q.name = $1", q.name).Scan(&made))
	equal(t, "a second lane was made", made, false)
	check(t, lock.Commit(t.Context()))
	q.complete(q.wantClaim("b"))
}

// P2: a claim that makes several lanes hands out one of them, and then finds that the job of
// another is not the first any more, so that it takes that lease back. It must not look again at
// the one it has handed out: an earlier job of that group may be there by now, whose
// transaction has just been committed.
func TestClaimKeepsWhatItHandsOut(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	q := newQueue(t, open(t, url, Options{}))
	q.publish("before", "before")
	q.complete(q.wantClaim("before")) // the first claim of a database calls it too
	_, err := q.b.pool.Exec(t.Context(), `ALTER FUNCTION rota.rewound RENAME TO rewound_at_once;
		CREATE FUNCTION rota.rewound() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(77); PERFORM rota.rewound_at_once(); END $$`)
	check(t, err)
	// The claim is to find a0 before a1 once it has the seat it waits for.
	first, second, gate := beginOn(t, url, pgx.TxOptions{}), beginOn(t, url, pgx.TxOptions{}), beginOn(t, url, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), first, q.jobs("a", "a0")))
	q.stored(q.b.PublishTx(t.Context(), second, q.jobs("b", "b0")))
	q.publish("a", "a1")
	q.publish("b", "b1")
	exec(t, first, "INSERT INTO rota.seat (queue, key) SELECT id, 'a' FROM rota.queue WHERE name = $1", q.name)
	exec(t, gate, "SELECT pg_advisory_xact_lock(77)")
	var leases []core.Lease
	claimed := later(q, func() error {
		res, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 2, Lease: hour, Owner: "test"})
		leases = res.Leases
		return err
	})
	eventually(t, "the claim waits for the seat", q.waitsFor(first))
	exec(t, first, "DELETE FROM rota.seat s USING rota.queue q WHERE q.id = s.queue AND q.name = $1", q.name)
	check(t, first.Commit(t.Context()))
	eventually(t, "the claim takes back a lease", q.waitsFor(gate))
	check(t, second.Commit(t.Context()))
	check(t, gate.Commit(t.Context()))
	claimed()
	var ids []string
	for _, l := range append(leases, q.claim(2)...) {
		ids = append(ids, l.JobID)
	}
	slices.Sort(ids)
	equal(t, "jobs handed out", fmt.Sprint(ids), "[a0 b1]")
}
