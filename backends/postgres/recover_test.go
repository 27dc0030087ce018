package rotapostgres

import (
	"fmt"
	"testing"

	"github.com/rota-queue/rota/core"
)

// A claim sets aside the leases of paused groups that have run out, on its way to a
// free one. The work is in proportion to their number, though what it has passed
// lies dead in its way.
func TestClaimPassesExpiredPaused(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	var p plans
	b, err := New(t.Context(), p.pool(t, url), Options{Notify: NotifyOff})
	check(t, err)
	defer func() { check(t, b.Close()) }()
	setup := connect(t, url)
	pages := func(name string, n int) int {
		q := queue{t, b, name}
		var req core.PublishRequest
		for i := range n {
			req.Jobs = append(req.Jobs, core.NewJob{Queue: q.name, Group: fmt.Sprint("g", i)})
		}
		q.stored(b.Publish(t.Context(), req))
		equal(t, "leases", len(q.claim(n)), n)
		_, err := setup.Exec(t.Context(), `UPDATE rota.lane l SET paused = true, due = rota.us() - 60000000 FROM rota.queue q WHERE q.id = l.queue AND q.name = $1`, q.name)
		check(t, err)
		_, err = setup.Exec(t.Context(), "SELECT rota.rewound()")
		check(t, err)
		q.publish("free", "free")
		p.take()
		q.wantClaim("free")
		looked := pagesOf(t, p.take())
		var left int
		check(t, setup.QueryRow(t.Context(), `SELECT count(*) FROM rota.lane l JOIN rota.queue q ON q.id = l.queue WHERE q.name = $1 AND l.leased`, q.name).Scan(&left))
		equal(t, "leases left", left, 1)
		return looked
	}
	pages("warm", 10) // loads the catalog
	few, many := pages("few", 100), pages("many", 800)
	t.Logf("a claim looked at %d pages for 100 leases, and at %d for 800", few, many)
	if many > 12*few {
		t.Errorf("a claim looked at %d pages for 100 leases that had run out, and at %d for 800", few, many)
	}
}
