package rotapostgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/rota-queue/rota/core"
)

// Where a token says that the lane is decides nothing: a lease is found whatever
// that says, and only with its fence and its random part.
func TestTokenHint(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	for i, hint := range []string{"0", "1", "ffff", "ffffffffffff"} {
		q.publish("g", "a", "b")
		l := q.wantClaim("a")
		part := strings.Split(l.Token, "-")
		equal(t, "parts of the token", len(part), 3)
		l.Token = part[0] + "-" + hint + "-" + part[2]
		twice := outcomes(core.Complete, l, l)
		twice[1].Lease.Token = strings.Join(part, "-") // the same lease
		switch i {
		case 0:
			check(t, q.b.Save(t.Context(), l.LeaseRef, core.Patch{Result: []byte("r")}))
		case 1:
			ends, err := q.b.Extend(t.Context(), q.name, []core.LeaseRef{l.LeaseRef, twice[1].Lease}, hour)
			check(t, err)
			check(t, errors.Join(ends[0].Err, ends[1].Err))
		}
		res, err := q.b.Settle(t.Context(), q.name, twice)
		check(t, err)
		check(t, res[0].Err)
		if !errors.Is(res[1].Err, core.ErrLeaseLost) {
			t.Errorf("a lease was settled twice: %v", res[1].Err)
		}
		q.complete(q.wantClaim("b"))
		q.wantNothing()
		if i == 0 { // it was kept with its result
			_, err := q.b.Move(t.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"a"}, To: core.StateGone})
			check(t, err)
		}
	}
	for _, text := range []string{"", "1", "1-2", "1-2-3", "1--0000000000000002", "1-02-0000000000000002", "1-1000000000000-0000000000000002", "1-2-0000000000000002-3", "-1-2-0000000000000002"} {
		if fence, _, _ := parseToken(text); fence != -1 {
			t.Errorf("%q is a token, of fence %d", text, fence)
		}
	}
	if fence, salt, tid := parseToken("1a-30002-00000000000000ff"); fence != 26 || salt != 255 || tid.BlockNumber != 3 || tid.OffsetNumber != 2 {
		t.Errorf("parsed %d, %d, %v", fence, salt, tid)
	}
}
