package rotapostgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

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
	var pid int
	check(t, claim.QueryRow(t.Context(), `SELECT pg_backend_pid() FROM rota.seat s JOIN rota.queue q ON q.id = s.queue
		WHERE q.name = $1 AND s.key = 'g' FOR UPDATE OF s`, q.name).Scan(&pid))
	settled := make(chan error, 1)
	go func() {
		res, err := q.b.Settle(t.Context(), q.name, outcomes(core.Complete, l))
		if err == nil {
			err = res[0].Err
		}
		settled <- err
	}()
	eventually(t, "the settle waits for the seat", func() bool {
		var waits bool
		check(t, q.b.pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))", pid).Scan(&waits))
		return waits
	})
	q.publish("g", "b")
	taken, err := claim.Exec(t.Context(), "DELETE FROM rota.arrival a USING rota.queue q WHERE q.id = a.queue AND q.name = $1 AND a.grp = 'g'", q.name)
	check(t, err)
	equal(t, "arrivals taken away", taken.RowsAffected(), 1)
	check(t, claim.Commit(t.Context()))
	check(t, <-settled)
	q.complete(q.wantClaim("b"))
	q.wantNothing()
}
