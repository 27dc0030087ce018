package backendtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rota-queue/rota/core"
)

var fenceTests = []test{
	{"GrowsWithEveryLease", testFenceGrows},
	{"GrowsOverDrain", testFenceOverDrain},
	{"GrowsOverDeletion", testFenceOverDeletion},
	{"GrowsForUngrouped", testFenceUngrouped},
	{"GrowsInBatch", testFenceInBatch},
	{"TokensAreUnique", testTokensUnique},
	{"LateButNotTakenOver", testLateWrites},
	{"SettleTwice", testSettleTwice},
	{"StaleInTheMiddle", testStaleInMiddle},
	{"SameLeaseTwiceInBatch", testSameLeaseTwice},
	{"SameLeaseAmongOthers", testSameLeaseAmongOthers},
	{"BatchOverManyClaims", testBatchOverClaims},
	{"NextHolderUnaffected", testNextHolder},
	{"EmptyBatches", testEmptyBatches},
}

// growing fails the test unless each lease of the sequence has a greater fence
// than the one before it.
type growing struct {
	f    *fixture
	last int64
}

func (g *growing) next(l core.Lease) core.Lease {
	g.f.Helper()
	if l.Fence <= g.last {
		g.f.Fatalf("fence %d follows %d", l.Fence, g.last)
	}
	g.last = l.Fence
	return l
}

func testFenceGrows(f *fixture) {
	fence := growing{f: f}
	f.add("g", "a", "b")
	f.release(fence.next(f.claim("a")))
	f.retry(fence.next(f.claim("a")), 0)
	f.snooze(fence.next(f.claim("a")), 0)
	f.expire(fence.next(f.claim("a")))
	f.complete(fence.next(f.otherHandle().claim("a")))
	f.kill(fence.next(f.claim("b")))
	f.move(core.StatePending, "b")
	fence.next(f.claim("b"))
}

// A group that drained and came back goes on where it was.
func testFenceOverDrain(f *fixture) {
	fence := growing{f: f}
	for _, id := range names("j", 10) {
		f.add("g", id)
		f.complete(fence.next(f.claim(id)))
		f.wantNoGroup("g")
	}
}

func testFenceOverDeletion(f *fixture) {
	fence := growing{f: f}
	for range 5 {
		f.add("g", "a")
		fence.next(f.claim("a"))
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
	}
}

func testFenceUngrouped(f *fixture) {
	fence := growing{f: f}
	f.add("", "a")
	for range 5 {
		f.retry(fence.next(f.claim("a")), 0)
	}
}

// Fences are made at the claim from the store's clock, one number for each.
func testFenceInBatch(f *fixture) {
	fences := map[int64]bool{}
	last := f.now().UnixMicro() - 1
	for _, group := range names("g", 20) {
		f.add(group, "in-"+group)
	}
	for range 3 {
		leases := f.claimUpTo(20)
		equal(f, "leases", len(leases), 20)
		for _, l := range leases {
			if l.Fence <= last {
				f.Fatalf("fence %d was made after %d", l.Fence, last)
			}
			if fences[l.Fence] {
				f.Fatalf("fence %d was given twice", l.Fence)
			}
			fences[l.Fence] = true
			equal(f, "fence of the job", f.job(l.JobID).Lease.Fence, l.Fence)
			equal(f, "fence of the group", f.group(l.Group).Lease.Fence, l.Fence)
		}
		for _, l := range leases {
			last = max(last, l.Fence)
			f.release(l)
		}
	}
}

func testTokensUnique(f *fixture) {
	seen := map[string]bool{}
	for _, group := range names("g", 10) {
		f.add(group, "in-"+group)
	}
	f.add("", "u", "v")
	for range 5 {
		leases := f.claimUpTo(20)
		equal(f, "leases", len(leases), 12)
		for _, l := range leases {
			if l.Token == "" || seen[l.Token] {
				f.Fatalf("token %q was given twice or is empty", l.Token)
			}
			seen[l.Token] = true
			f.release(l)
		}
	}
}

// Until somebody takes the group over, a late holder still holds it.
func testLateWrites(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.add(group, "a", "b")
		l := f.tryClaim(core.ClaimRequest{Lease: core.MinLease}).Leases[0]
		f.passes(l.Until)
		f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: []byte("late")}))
		equal(f, "result", string(f.job("a").Result), "late")
		ext := f.extend(l, core.MinLease)
		f.check(ext.Err)
		f.passes(ext.Until)
		f.complete(l)
		f.wantState("a", core.StateCompleted) // it has a result
		f.wantServed("b")
	}
}

func testSettleTwice(f *fixture) {
	for _, group := range []string{"g", ""} {
		for action := core.Complete; action <= core.Cancel; action++ {
			f := f.otherQueue()
			f.configure(core.QueueConfig{CompletedRetention: hour})
			f.add(group, "a")
			l := f.claim("a")
			f.settle(l, core.Outcome{Action: action, Error: "once"})
			f.unchanged("a second settle", func() {
				for again := core.Complete; again <= core.Cancel; again++ {
					f.wantErr(f.trySettle(l, core.Outcome{Action: again, Error: "twice"}).Err, core.ErrLeaseLost)
				}
			})
		}
	}
}

func testStaleInMiddle(f *fixture) {
	for _, group := range names("g", 5) {
		f.add(group, "in-"+group)
	}
	leases := f.claimUpTo(5)
	f.release(leases[2])
	held := f.claim(leases[2].JobID)

	outcomes := make([]core.Outcome, 5)
	for i, l := range leases {
		outcomes[i] = core.Outcome{Lease: l.LeaseRef, Action: core.Dead, Error: "batch"}
	}
	refs := make([]core.LeaseRef, 5)
	for i, l := range leases {
		refs[i] = l.LeaseRef
	}
	extensions, err := f.b.Extend(f.ctx, f.queue, refs, 2*hour)
	f.check(err)
	equal(f, "extensions", len(extensions), 5)
	results := f.trySettleAll(outcomes...)
	for i, l := range leases {
		if i == 2 {
			f.wantErr(extensions[i].Err, core.ErrLeaseLost)
			f.wantErr(results[i].Err, core.ErrLeaseLost)
			f.wantState(l.JobID, core.StateRunning)
			continue
		}
		f.check(extensions[i].Err)
		if !extensions[i].Until.After(l.Until.Add(hour / 2)) {
			f.Errorf("lease %d was extended from %s to %s", i, clock(l.Until), clock(extensions[i].Until))
		}
		f.check(results[i].Err)
		equal(f, "state", results[i].State, core.StateDead)
		f.wantState(l.JobID, core.StateDead)
	}
	equal(f, "end of the next holder's lease", clock(f.job(held.JobID).Lease.Until), clock(held.Until))
	f.complete(held)
}

// Within one batch the first settle ends the lease.
func testSameLeaseTwice(f *fixture) {
	f.add("g", "a")
	l := f.claim("a")
	results := f.trySettleAll(
		core.Outcome{Lease: l.LeaseRef, Action: core.Release},
		core.Outcome{Lease: l.LeaseRef, Action: core.Dead, Error: "late"},
	)
	f.check(results[0].Err)
	equal(f, "state", results[0].State, core.StatePending)
	f.wantErr(results[1].Err, core.ErrLeaseLost)
	f.wantServed("a")
}

// A lease named again, and one that is named with another group or job first, take
// nothing from those beside them.
func testSameLeaseAmongOthers(f *fixture) {
	f.add("g", "a", "a2")
	f.add("h", "b", "b2")
	a, b := f.claim("a"), f.claim("b")
	complete := func(ref core.LeaseRef) core.Outcome { return core.Outcome{Lease: ref, Action: core.Complete} }
	results := f.trySettleAll(
		complete(changed(a, func(r *core.LeaseRef) { r.Group = "h" })),
		complete(changed(a, func(r *core.LeaseRef) { r.JobID = "a2" })),
		complete(a.LeaseRef),
		complete(a.LeaseRef),
		complete(b.LeaseRef),
		complete(a.LeaseRef),
	)
	for i, r := range results {
		if i == 2 || i == 4 {
			f.check(r.Err)
			equal(f, "state", r.State, core.StateGone)
		} else {
			f.wantErr(r.Err, core.ErrLeaseLost)
		}
	}
	f.wantServed("a2", "b2")
}

// A batch has leases of several claims in any order, and some of them are lost.
func testBatchOverClaims(f *fixture) {
	const claims, each = 4, 3
	var outcomes []core.Outcome
	for i := range claims * each {
		f.add(fmt.Sprint("g", i), fmt.Sprint("job", i), fmt.Sprint("later", i))
	}
	for range claims {
		for _, l := range f.claimUpTo(each) {
			outcomes = append(outcomes, core.Outcome{Lease: l.LeaseRef, Action: core.Complete})
		}
	}
	lost := map[int]bool{0: true, each + 1: true, 2*each + 2: true}
	for i := range lost { // released, and so lost
		f.check(f.trySettleAll(core.Outcome{Lease: outcomes[i].Lease, Action: core.Release})[0].Err)
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(outcomes))
	batch := make([]core.Outcome, len(outcomes))
	for at, i := range order {
		batch[at] = outcomes[i]
	}
	for at, r := range f.trySettleAll(batch...) {
		if lost[order[at]] {
			f.wantErr(r.Err, core.ErrLeaseLost)
		} else {
			f.check(r.Err)
		}
	}
	equal(f, "jobs left", f.info().Jobs[core.StatePending], int64(claims*each+len(lost)))
}

// A zombie wakes up at every stage of the next holder's work and hurts nothing.
func testNextHolder(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	f.put(core.NewJob{Group: "g", ID: "a", Payload: []byte("original"), MaxAttempts: core.Unlimited})
	f.add("g", "b")
	zombie := f.claim("a")
	f.expire(zombie)
	next := f.otherHandle().claim("a")
	attack := func() {
		f.Helper()
		f.unchanged("a zombie", func() {
			for _, w := range holderWrites {
				f.wantErr(w.do(f, zombie.LeaseRef), core.ErrLeaseLost)
			}
		})
	}
	attack()
	f.check(f.extend(next, 2*hour).Err)
	attack()
	f.retry(next, hour)
	attack()
	f.move(core.StatePending, "a")
	attack()
	f.complete(f.claim("a"))
	attack()
	f.complete(f.claim("b"))
	attack()
	f.add("g", "c")
	attack()
	f.wantServed("c")
}

func testEmptyBatches(f *fixture) {
	f.add("g", "a")
	l := f.claim("a")
	f.unchanged("an empty batch", func() {
		equal(f, "publish results", len(f.tryPublish()), 0)
		equal(f, "settle results", len(f.trySettleAll()), 0)
		extensions, err := f.b.Extend(f.ctx, f.queue, nil, time.Minute)
		f.check(err)
		equal(f, "extensions", len(extensions), 0)
	})
	f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{}))
	f.complete(l)
}
