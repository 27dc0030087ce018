package rotapostgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// A publish makes a deleted queue anew, also in a program's transaction, where it must
// not lock the queue: whatever takes the job out of it makes the queue exist. No
// hint is sent here.
func TestPublishRevivesQueue(t *testing.T) {
	t.Parallel()
	b := open(t, testserver.SharedPostgres(t).URL(), Options{Notify: NotifyOff})
	move := func(to core.State) func(q queue) {
		return func(q queue) {
			res, err := q.b.Move(t.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"b"}, To: to})
			check(q, err)
			check(q, res.Errs[0])
		}
	}
	for name, take := range map[string]func(q queue){
		"Complete": func(q queue) { q.complete(q.wantClaim("b")) },
		"Delete":   move(core.StateGone),
		"Cancel": func(q queue) {
			check(q, q.b.ActOnGroup(t.Context(), q.name, "g", core.SkipHead))
			move(core.StateGone)(q)
		},
	} {
		for _, how := range []string{"Publish", "PublishTx", "Rules"} {
			t.Run(name+how, func(t *testing.T) {
				q := newQueue(t, b)
				q.publish("g", "a")
				var tx pgx.Tx
				req := q.jobs("g", "b")
				if how == "PublishTx" {
					tx = begin(t, pgx.TxOptions{})
					q.stored(b.PublishTx(t.Context(), tx, req))
				}
				check(t, b.DeleteQueue(t.Context(), q.name, true))
				_, err := b.QueueInfo(t.Context(), q.name)
				wantError(t, err, core.ErrNotFound, q.name)
				switch how {
				case "PublishTx":
					check(t, tx.Commit(t.Context()))
				case "Rules":
					req.Jobs[0].Dedup.Key = "k"
					q.stored(b.Publish(t.Context(), req))
				default:
					q.stored(b.Publish(t.Context(), req))
				}
				take(q)
				_, err = b.QueueInfo(t.Context(), q.name)
				check(t, err)
				equal(t, "state", q.state("b"), core.StateGone)
			})
		}
	}
}
