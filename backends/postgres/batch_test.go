package rotapostgres

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rota-queue/rota/core"
)

// The groups of one batch are in the order of their turns, whether they are new
// (arrivals), were served before (lanes), or both.
func TestBatchInTurnOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	const n = 12
	var want []string
	for _, i := range rand.Perm(n) { // not in the order of their names
		want = append(want, fmt.Sprint("g", i))
		q.publish(want[len(want)-1], "", "")
	}
	leases := q.claim(n)
	equal(t, "new groups", groupsOf(leases), fmt.Sprint(want))
	want = want[:0]
	for _, i := range rand.Perm(n) {
		q.complete(leases[i]) // one call each: each has a turn of its own
		want = append(want, leases[i].Group)
	}
	leases = q.claim(n)
	equal(t, "groups served before", groupsOf(leases), fmt.Sprint(want))
}

func groupsOf(leases []core.Lease) string {
	groups := []string{}
	for _, l := range leases {
		groups = append(groups, l.Group)
	}
	return fmt.Sprint(groups)
}
