package backendtest

import (
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// staleTests try every write of a holder with every kind of stale token.
var staleTests = []test{
	{"Forged", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		return changed(l, func(r *core.LeaseRef) { r.Token = strings.Repeat("0", len(r.Token)) })
	})},
	{"Empty", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		return changed(l, func(r *core.LeaseRef) { r.Token = "" })
	})},
	{"PartOfToken", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		return changed(l, func(r *core.LeaseRef) { r.Token = r.Token[:len(r.Token)-1] })
	})},
	{"OtherJob", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		return changed(l, func(r *core.LeaseRef) { r.JobID = "b" })
	})},
	{"UnknownJob", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		return changed(l, func(r *core.LeaseRef) { r.JobID = "nobody" })
	})},
	{"OtherGroup", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		f.add("other", "o")
		f.claim("o")
		return changed(l, func(r *core.LeaseRef) { r.Group, r.JobID = "other", "o" })
	})},
	{"TakenOver", staleWhileHeld(func(f *fixture, l core.Lease) core.LeaseRef {
		f.expire(l)
		f.otherHandle().claim("a")
		return l.LeaseRef
	})},
	{"RecoveredAndSetAside", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.act("g", core.PauseGroup)
		f.expire(l)
		f.claimNothing()
		f.wantState("a", core.StatePending)
		return l.LeaseRef
	})},
	{"DeadByExpiry", staleTest(1, func(f *fixture, l core.Lease) core.LeaseRef {
		f.expire(l)
		f.claim("b")
		f.wantState("a", core.StateDead)
		return l.LeaseRef
	})},
	{"Released", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.release(l)
		return l.LeaseRef
	})},
	{"Retrying", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.retry(l, hour)
		return l.LeaseRef
	})},
	{"DeadJob", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.kill(l)
		return l.LeaseRef
	})},
	{"CompletedAndGone", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.complete(l)
		f.wantState("a", core.StateGone)
		return l.LeaseRef
	})},
	{"JobDeleted", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.release(l)
		f.move(core.StateGone, "a")
		return l.LeaseRef
	})},
	{"GroupDrained", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.complete(l)
		f.wantServed("b")
		return l.LeaseRef
	})},
	{"QueueDeleted", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		return l.LeaseRef
	})},
	{"QueueDeletedAndMadeAgain", staleTest(core.Unlimited, func(f *fixture, l core.Lease) core.LeaseRef {
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		f.add(l.Group, "a", "b")
		f.claim("a")
		return l.LeaseRef
	})},
	{"QueueNeverMade", testStaleNoQueue},
	{"Ungrouped", testStaleUngrouped},
}

// changed is the lease's name with a change.
func changed(l core.Lease, change func(*core.LeaseRef)) core.LeaseRef {
	ref := l.LeaseRef
	change(&ref)
	return ref
}

// staleTest lets makeStale turn the lease of job a into a stale reference and
// then tries all writes with it.
func staleTest(maxAttempts int, makeStale func(*fixture, core.Lease) core.LeaseRef) func(*fixture) {
	return func(f *fixture) {
		f.put(core.NewJob{Group: "g", ID: "a", Payload: []byte("original"), MaxAttempts: maxAttempts})
		f.add("g", "b")
		f.wantStale(makeStale(f, f.claim("a")))
	}
}

// staleWhileHeld is a staleTest in which job a is still held in the end.
func staleWhileHeld(makeStale func(*fixture, core.Lease) core.LeaseRef) func(*fixture) {
	return func(f *fixture) {
		staleTest(core.Unlimited, makeStale)(f)
		job := f.job("a")
		equal(f, "state", job.State, core.StateRunning)
		equal(f, "payload", string(job.Payload), "original")
	}
}

func testStaleNoQueue(f *fixture) {
	f.wantStale(core.LeaseRef{Queue: f.queue, Group: "g", JobID: "a", Token: "t"})
	f.wantStale(core.LeaseRef{Queue: f.queue, JobID: "a", Token: "t"})
}

func testStaleUngrouped(f *fixture) {
	f.put(core.NewJob{ID: "a", MaxAttempts: core.Unlimited})
	f.add("", "other")
	leases := f.claimBatch("a", "other")
	f.wantStale(changed(leases[0], func(r *core.LeaseRef) { r.Token = leases[1].Token }))
	f.wantStale(changed(leases[0], func(r *core.LeaseRef) { r.JobID = "other" }))
	f.wantStale(changed(leases[0], func(r *core.LeaseRef) { r.Token = "" }))
	f.expire(leases[0])
	next := f.claim("a")
	f.wantStale(leases[0].LeaseRef)
	f.retry(next, hour)
	f.wantStale(next.LeaseRef)
	f.wantStale(leases[0].LeaseRef)
	f.move(core.StateGone, "a")
	f.wantStale(next.LeaseRef)
	f.complete(leases[1])
	f.wantStale(leases[1].LeaseRef)
}

// wantStale tries all writes: each must answer ErrLeaseLost and change nothing.
func (f *fixture) wantStale(ref core.LeaseRef) {
	f.Helper()
	before := f.dump()
	for _, w := range holderWrites {
		f.wantErr(w.do(f, ref), core.ErrLeaseLost)
		f.still(before, w.name+" with a stale token")
	}
}

// holderWrites are all writes that a holder of a lease may do.
var holderWrites = []struct {
	name string
	do   func(f *fixture, ref core.LeaseRef) error
}{
	{"complete", staleSettle(core.Complete, 0)},
	{"plain complete", func(f *fixture, ref core.LeaseRef) error {
		return f.trySettleAll(core.Outcome{Lease: ref, Action: core.Complete})[0].Err
	}},
	{"retry", staleSettle(core.Retry, 0)},
	{"delayed retry", staleSettle(core.Retry, hour)},
	{"release", staleSettle(core.Release, 0)},
	{"snooze", staleSettle(core.Snooze, 0)},
	{"delayed snooze", staleSettle(core.Snooze, hour)},
	{"dead", staleSettle(core.Dead, 0)},
	{"cancel", staleSettle(core.Cancel, 0)},
	{"extend", func(f *fixture, ref core.LeaseRef) error {
		res, err := f.b.Extend(f.ctx, f.queue, []core.LeaseRef{ref}, 2*hour)
		f.check(err)
		return res[0].Err
	}},
	{"save", func(f *fixture, ref core.LeaseRef) error {
		return f.b.Save(f.ctx, ref, stalePatch)
	}},
}

var stalePatch = core.Patch{
	Payload:    []byte("overwritten"),
	Result:     []byte("overwritten"),
	SetHeaders: map[string]string{"stale": "yes"},
}

func staleSettle(action core.Action, delay time.Duration) func(*fixture, core.LeaseRef) error {
	return func(f *fixture, ref core.LeaseRef) error {
		res := f.trySettleAll(core.Outcome{Lease: ref, Action: action, Delay: delay, Error: "stale", Patch: stalePatch})
		return res[0].Err
	}
}
