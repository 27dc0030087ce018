package rotaredis

import (
	"errors"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// The scripts look at a part of the token only. So any other token, and a token of
// another group or job, is found to be none before they are asked.
func TestChangedTokenFits(t *testing.T) {
	b := openShared(t)
	queue := testserver.UniqueName(t)
	put(t, b, core.NewJob{Queue: queue, Group: "g", ID: "a"})
	put(t, b, core.NewJob{Queue: queue, ID: "lone"})
	res := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: 2, Lease: time.Hour}))
	for _, l := range res.Leases {
		for i := range len(l.Token) {
			changed := l.LeaseRef
			other := byte('0')
			if l.Token[i] == other {
				other = '1'
			}
			changed.Token = l.Token[:i] + string(other) + l.Token[i+1:]
			wantLost(t, b, changed)
		}
		for _, change := range []func(*core.LeaseRef){
			func(r *core.LeaseRef) { r.Token += "0" },
			func(r *core.LeaseRef) { r.Group += "x" },
			func(r *core.LeaseRef) { r.JobID += "x" },
			func(r *core.LeaseRef) { r.Group, r.JobID = r.JobID, r.Group },
			func(r *core.LeaseRef) { r.Group, r.JobID = r.Group+r.JobID, "" },
		} {
			changed := l.LeaseRef
			change(&changed)
			wantLost(t, b, changed)
		}
	}
	outcomes := make([]core.Outcome, 2)
	for i, l := range res.Leases {
		outcomes[i] = core.Outcome{Lease: l.LeaseRef, Action: core.Complete}
	}
	for _, r := range must[[]core.SettleResult](t)(b.Settle(t.Context(), queue, outcomes)) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}

func wantLost(t *testing.T, b *Backend, lease core.LeaseRef) {
	t.Helper()
	results := must[[]core.SettleResult](t)(b.Settle(t.Context(), lease.Queue, []core.Outcome{{Lease: lease, Action: core.Complete}}))
	extended := must[[]core.Extension](t)(b.Extend(t.Context(), lease.Queue, []core.LeaseRef{lease}, time.Hour))
	saved := b.Save(t.Context(), lease, core.Patch{Result: []byte("x")})
	for _, err := range []error{results[0].Err, extended[0].Err, saved} {
		if !errors.Is(err, core.ErrLeaseLost) {
			t.Errorf("lease %+v: %v, want ErrLeaseLost", lease, err)
		}
	}
}
