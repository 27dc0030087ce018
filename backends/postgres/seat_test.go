package rotapostgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// completing completes a lease beside the test, and gives a function that awaits that.
func (q queue) completing(l core.Lease) func() {
	return later(q, func() error {
		res, err := q.b.Settle(q.Context(), q.name, outcomes(core.Complete, l))
		if err == nil {
			err = res[0].Err
		}
		return err
	})
}

// P4: a settle has seen the line empty; before it gets the group's seat, a publish
// commits and a claim, which holds the seat, takes the arrival away. The settle
// must look once more, or the job stands in a group that nobody serves.
func TestPublishMeetsDrainAtTheSeat(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	l := q.wantClaim("a")
	// The claim's part is played by hand, so that it takes as long as it must.
	claim := begin(t, pgx.TxOptions{})
	locked, err := claim.Exec(t.Context(), `SELECT 1 FROM rota.seat s JOIN rota.queue q ON q.id = s.queue
		WHERE q.name = $1 AND s.key = 'g' FOR UPDATE OF s`, q.name)
	check(t, err)
	equal(t, "seats", locked.RowsAffected(), 1)
	settled := q.completing(l)
	eventually(t, "the settle waits for the seat", q.waitsFor(claim))
	q.publish("g", "b")
	taken, err := claim.Exec(t.Context(), "DELETE FROM rota.arrival a USING rota.queue q WHERE q.id = a.queue AND q.name = $1 AND a.grp = 'g'", q.name)
	check(t, err)
	equal(t, "arrivals taken away", taken.RowsAffected(), 1)
	check(t, claim.Commit(t.Context()))
	settled()
	q.complete(q.wantClaim("b"))
	q.wantNothing()
}

// arrivals is how many arrivals a queue has.
func (q queue) arrivals() (n int) {
	q.Helper()
	check(q, q.b.pool.QueryRow(q.Context(), "SELECT count(*) FROM rota.arrival a JOIN rota.queue q ON q.id = a.queue WHERE q.name = $1", q.name).Scan(&n))
	return n
}

// A publish in a transaction of its own leaves no arrival for a group that has a lane; one in
// a program's transaction, which locks nothing, does. Either job is found.
func TestPublishSparesArrivals(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	equal(t, "arrivals of a new group", q.arrivals(), 1)
	l := q.wantClaim("a")
	equal(t, "arrivals once it has a lane", q.arrivals(), 0)
	q.publish("g", "b")
	equal(t, "arrivals by a publish", q.arrivals(), 0)
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("g", "c")))
	check(t, tx.Commit(t.Context()))
	equal(t, "arrivals by a publish in a transaction", q.arrivals(), 1)
	q.complete(l)
	for _, id := range []string{"b", "c"} {
		q.complete(q.wantClaim(id))
	}
	q.wantNothing()
	q.publish("g", "d")
	equal(t, "arrivals of a group that has drained", q.arrivals(), 1)
	q.complete(q.wantClaim("d"))
}

// P4: a publish that leaves no arrival has the seat until it commits. A settle that has seen the
// line empty waits for that, and finds the job.
func TestDrainMeetsPublishAtTheSeat(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	l := q.wantClaim("a")
	tx := begin(t, pgx.TxOptions{})
	p, err := q.b.plan(q.jobs("g", "b"))
	check(t, err)
	q.stored(p.run(t.Context(), tx)) // as on a connection, but that it takes its time to commit
	settled := q.completing(l)
	eventually(t, "the settle waits for the seat", q.waitsFor(tx))
	check(t, tx.Commit(t.Context()))
	settled()
	equal(t, "arrivals", q.arrivals(), 0)
	q.complete(q.wantClaim("b"))
	q.wantNothing()
}

// A publish waits for nobody at the seat, and nothing of others waits for a publish that waits
// for its id, which a program's open transaction has taken.
func TestPublishWaitsBeforeTheSeat(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	l := q.wantClaim("a")
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("other", "b")))
	published := later(q, func() error {
		res, err := q.b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, Group: "g", ID: "c"}, {Queue: q.name, Group: "g", ID: "b"}}})
		if err == nil {
			err = res[0].Err
		}
		return err
	})
	eventually(t, "the publish waits for its id", q.waitsFor(tx))
	q.complete(l) // drains the group, and does not wait
	q.wantNothing()
	check(t, tx.Commit(t.Context()))
	published()
	for range 2 {
		q.complete(q.claim(1)...)
	}
	q.wantNothing()
}
