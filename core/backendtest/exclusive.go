package backendtest

import (
	"fmt"
	"sync/atomic"

	"github.com/rota-queue/rota/core"
)

var exclusiveTests = []test{
	{"OneLeasePerGroup", testOneLease},
	{"OneOfManyClaimers", testOneOfManyClaimers},
	{"OpensWithEverySettle", testOpensWithSettle},
	{"UngroupedAreIndependent", testUngroupedIndependent},
	{"GroupsAreIndependent", testGroupsIndependent},
	{"RunningCanNotBeMoved", testRunningNotMoved},
	{"ActsDoNotOpen", testActsDoNotOpen},
	{"QueuesAreIndependent", testQueuesIndependent},
}

func testOneLease(f *fixture) {
	f.add("g", "a", "b", "c")
	l := f.claimBatch("a")[0]
	f.claimNothing()
	f.otherHandle().claimNothing()
	f.extend(l, hour)
	f.claimNothing()
	f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: []byte("half")}))
	f.claimNothing()
}

func testOneOfManyClaimers(f *fixture) {
	handles := []core.Backend{f.b, f.open(), f.open()}
	for round := range 10 {
		group := fmt.Sprint("g", round)
		f.add(group, group+"a", group+"b")
		var won atomic.Int64
		f.together(8, func(i int) error {
			res, err := handles[i%3].Claim(f.ctx, core.ClaimRequest{Queue: f.queue, Max: 1 + i, Lease: hour})
			won.Add(int64(len(res.Leases)))
			return err
		})
		equal(f, "leases of one group", won.Load(), 1)
	}
}

// Each action opens the group for its next job, and only then.
func testOpensWithSettle(f *fixture) {
	for action := core.Complete; action <= core.Cancel; action++ {
		f := f.otherQueue()
		f.add("g", "a", "b")
		l := f.claim("a")
		f.claimNothing()
		f.settle(l, core.Outcome{Action: action})
		if got := f.claimUpTo(10); len(got) != 1 {
			f.Fatalf("claimed %v after %s, want one job", jobIDs(got), action)
		}
	}
}

func testUngroupedIndependent(f *fixture) {
	f.add("", "a", "b", "c")
	leases := f.claimBatch("a", "b", "c")
	f.claimNothing()
	for _, l := range leases {
		equal(f, "group", l.Group, "")
		equal(f, "group of the job", l.Job.Group, "")
	}
	f.complete(leases[1])
	f.claimNothing()
	f.retry(leases[2], 0)
	f.claimBatch("c")
}

// One claim takes at most one job of each group.
func testGroupsIndependent(f *fixture) {
	for i := range 3 {
		for _, group := range []string{"g", "h", "k"} {
			f.add(group, fmt.Sprint(group, i))
		}
	}
	leases := f.claimBatch("g0", "h0", "k0")
	f.claimNothing()
	f.complete(leases[1])
	f.claimBatch("h1")
}

func testRunningNotMoved(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.unchanged("a refused move", func() {
		for _, to := range []core.State{core.StatePending, core.StateDead, core.StateGone} {
			res := f.tryMove(to, "a")
			f.wantErr(res.Errs[0], core.ErrWrongState)
			equal(f, "moved", res.Moved, 0)
		}
		f.claimNothing()
	})
	f.complete(l)
}

// No act of a person opens a group that is in flight.
func testActsDoNotOpen(f *fixture) {
	f.add("g", "z", "a", "b", "c")
	f.kill(f.claim("z"))
	l := f.claim("a")
	for _, act := range []core.GroupAct{core.PauseGroup, core.ResumeGroup, core.HoldGroup, core.ReleaseGroup} {
		f.act("g", act)
		f.claimNothing()
	}
	f.wantErr(f.b.ActOnGroup(f.ctx, f.queue, "g", core.SkipHead), core.ErrWrongState)
	f.move(core.StatePending, "z") // enters in front
	f.claimNothing()
	f.move(core.StateGone, "b")
	f.claimNothing()
	f.move(core.StateCancelled, "a") // is asked to end
	f.claimNothing()
	f.complete(l)
	f.wantServed("z", "c")
}

// The same names in another queue are other jobs and groups.
func testQueuesIndependent(f *fixture) {
	g := f.otherQueue()
	f.add("g", "a", "b")
	g.add("g", "a", "b")
	l := f.claim("a")
	m := g.claim("a")
	f.complete(l)
	g.wantState("a", core.StateRunning)
	f.complete(f.claim("b"))
	g.complete(m)
	g.wantServed("b")
}
