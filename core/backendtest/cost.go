package backendtest

import (
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

var costTests = []test{
	{"BigBatches", testBigBatches},
	{"BigExtend", testBigExtend},
	{"BacklogOfOtherGroups", testBacklogCost},
	{"BacklogOfOneGroup", testDeepGroupCost},
	{"SetAsideCostsOnce", testSetAsideCost},
}

// The largest batches there may be.
func testBigBatches(f *fixture) {
	n := f.h.scale(core.MaxPublishBatch)
	batch := make([]core.NewJob, n)
	for i := range batch {
		batch[i] = core.NewJob{Group: fmt.Sprint("g", i%(n/2))}
	}
	f.publish(batch...)
	equal(f, "pending", f.info().Jobs[core.StatePending], int64(n))
	seen := map[string]bool{}
	var outcomes []core.Outcome
	for len(outcomes) < n/2 {
		leases := f.claimUpTo(core.MaxClaimBatch)
		equal(f, "leases", len(leases), min(core.MaxClaimBatch, n/2-len(outcomes)))
		for _, l := range leases {
			if seen[l.Group] {
				f.Fatalf("group %q was leased twice", l.Group)
			}
			seen[l.Group] = true
			outcomes = append(outcomes, core.Outcome{Lease: l.LeaseRef, Action: core.Complete})
		}
	}
	f.claimNothing()
	for _, res := range f.trySettleAll(outcomes...) {
		f.check(res.Err)
	}
	equal(f, "pending", f.info().Jobs[core.StatePending], int64(n-n/2))
	equal(f, "completed", f.counted().Completed, int64(n/2))
}

func testBigExtend(f *fixture) {
	n := f.h.scale(core.MaxClaimBatch)
	f.publish(make([]core.NewJob, n)...)
	leases := f.claimUpTo(n)
	refs := make([]core.LeaseRef, n)
	for i := range leases {
		refs[i] = leases[i].LeaseRef
	}
	from := f.now()
	extensions, err := f.b.Extend(f.ctx, f.queue, refs, 3*hour)
	f.check(err)
	equal(f, "extensions", len(extensions), n)
	for _, ext := range extensions {
		f.check(ext.Err)
		f.within("end", ext.Until, from.Add(3*hour), f.now().Add(3*hour))
	}
}

// costRatio and costSlack bound how much slower an operation may become by a
// backlog it has nothing to do with. They are wide, because the tests run beside
// others; a scan of the backlog exceeds them.
const (
	costRatio = 10
	costSlack = 200 * time.Microsecond
)

// cheap fails the test if an operation takes much longer with a backlog. The
// fastest of many is compared: noise only adds.
func (f *fixture) cheap(do func(), grow func()) {
	f.Helper()
	fastest := func() time.Duration {
		least := time.Hour
		for range 50 {
			start := time.Now()
			do()
			least = min(least, time.Since(start))
		}
		return least
	}
	do()
	before := fastest()
	grow()
	after, ok := cheapAgain(before, fastest, time.Now().Add(patience))
	f.Logf("%s without, %s with the backlog", before, after)
	if !ok {
		f.Fatalf("an operation took %s and takes %s with a backlog", before, after)
	}
}

// cheapAgain measures until an operation costs about what it did before, or the
// time is over. What growing the backlog has left behind may cost for as long as
// something else on the store holds it (what has died and can not be removed while
// a neighbour's long statement might see it, say). That passes; a scan of the backlog
// does not.
func cheapAgain(before time.Duration, measure func() time.Duration, deadline time.Time) (after time.Duration, ok bool) {
	for {
		after = measure()
		if after <= costRatio*before+costSlack {
			return after, true
		}
		if time.Now().After(deadline) {
			return after, false
		}
	}
}

// round is one turn of a group: publish, claim, extend, settle.
func (f *fixture) round(priority int) {
	f.Helper()
	f.put(core.NewJob{Group: "mine", ID: "a", Priority: priority})
	l := f.claim("a")
	f.extend(l, 2*hour)
	f.complete(l)
}

func testBacklogCost(f *fixture) {
	n := f.h.scale(40_000)
	f.cheap(func() { f.round(core.MaxPriority) }, func() {
		for done := 0; done < n; {
			batch := make([]core.NewJob, min(5000, n-done))
			for i := range batch {
				batch[i] = core.NewJob{Group: fmt.Sprint("g", done+i)}
			}
			f.publish(batch...)
			done += len(batch)
		}
	})
}

func testDeepGroupCost(f *fixture) {
	f.cheap(func() {
		f.put(core.NewJob{Group: "deep"})
		leases := f.claimUpTo(1)
		equal(f, "leases", len(leases), 1)
		f.complete(leases[0])
	}, func() {
		for range 4 {
			batch := make([]core.NewJob, f.h.scale(5000))
			for i := range batch {
				batch[i] = core.NewJob{Group: "deep"}
			}
			f.publish(batch...)
		}
	})
}

// A group that may not be claimed costs a claim once, not every claim that has
// to look behind it.
func testSetAsideCost(f *fixture) {
	f.cheap(func() { f.round(0) }, func() {
		n := f.h.scale(2000)
		f.crowd(n, core.NewJob{Priority: core.MaxPriority})
		// Half of them are set aside by the claim that recovers them.
		leases := f.claimUpTo(n / 2)
		for i := range n {
			f.act(fmt.Sprint("crowd", i), core.PauseGroup)
		}
		f.expire(leases...)
		f.claimNothing()
	})
}
