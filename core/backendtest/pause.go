package backendtest

import (
	"github.com/rota-queue/rota/core"
)

var pauseTests = []test{
	{"Queue", testPauseQueue},
	{"QueueLetsSettle", testPausedQueueSettles},
	{"Group", testPauseGroup},
	{"GroupThatDoesNotExist", testPauseNothing},
	{"GroupStaysPausedWhenDrained", testPausedDrains},
	{"GroupActsAreIdempotent", testActsIdempotent},
	{"NoSuchGroup", testActsOnNothing},
	{"GroupAndQueue", testPauseBoth},
	{"SkipHead", testSkipHead},
	{"SkipHeadRunning", testSkipHeadRunning},
	{"SkipHeadParked", testSkipHeadParked},
	{"SkipHeadKeepsPauseAndHold", testSkipHeadAside},
}

func (f *fixture) pauseQueue() bool {
	f.Helper()
	changed, err := f.b.PauseQueue(f.ctx, f.queue)
	f.check(err)
	return changed
}

func (f *fixture) resumeQueue() bool {
	f.Helper()
	changed, err := f.b.ResumeQueue(f.ctx, f.queue)
	f.check(err)
	return changed
}

func testPauseQueue(f *fixture) {
	f.add("g", "a")
	equal(f, "changed", f.pauseQueue(), true)
	equal(f, "changed again", f.pauseQueue(), false)
	equal(f, "paused", f.info().Paused, true)
	for _, b := range []core.Backend{f.b, f.open()} {
		res, err := b.Claim(f.ctx, core.ClaimRequest{Queue: f.queue, Max: 5, Lease: hour})
		f.wantErr(err, core.ErrQueuePaused)
		equal(f, "leases", len(res.Leases), 0)
	}
	f.configure(core.QueueConfig{MaxAttempts: 3})
	equal(f, "paused after a configuration", f.info().Paused, true)
	equal(f, "changed", f.resumeQueue(), true)
	equal(f, "changed again", f.resumeQueue(), false)
	equal(f, "paused", f.info().Paused, false)
	f.wantServed("a")
}

// Only claims stop: what runs goes on to its end.
func testPausedQueueSettles(f *fixture) {
	f.add("g", "a", "b")
	f.add("h", "c")
	leases := f.claimBatch("a", "c")
	f.pauseQueue()
	f.check(f.extend(leases[0], hour).Err)
	f.check(f.b.Save(f.ctx, leases[0].LeaseRef, core.Patch{Result: []byte("r")}))
	f.complete(leases[0])
	f.retry(leases[1], 0)
	f.wantState("a", core.StateCompleted)
	f.move(core.StateCancelled, "b")
	f.add("k", "d")
	f.resumeQueue()
	f.wantServed("d", "c")
}

func testPauseGroup(f *fixture) {
	f.add("g", "a", "b")
	f.add("h", "c")
	f.act("g", core.PauseGroup)
	info := f.group("g")
	equal(f, "paused", info.Paused, true)
	equal(f, "held", info.Held, false)
	equal(f, "depth", info.Depth, 2)
	equal(f, "head", info.Head, "a")
	equal(f, "due", info.DueSince.IsZero(), true)
	f.claimBatch("c")
	f.act("g", core.ResumeGroup)
	equal(f, "paused", f.group("g").Paused, false)
	l := f.claim("a")
	f.act("g", core.PauseGroup) // what runs goes on
	f.check(f.extend(l, hour).Err)
	equal(f, "lease while paused", f.group("g").Lease != nil, true)
	f.complete(l)
	f.claimNothing()
	f.act("g", core.ResumeGroup)
	f.wantServed("b")
}

func testPauseNothing(f *fixture) {
	f.configure(core.QueueConfig{})
	f.act("g", core.PauseGroup)
	info := f.group("g")
	equal(f, "paused", info.Paused, true)
	equal(f, "depth", info.Depth, 0)
	equal(f, "head", info.Head, "")
	equal(f, "groups", f.info().Groups, 1)
	f.claimNothing()
	f.add("g", "a")
	f.claimNothing()
	f.act("g", core.ResumeGroup)
	f.wantServed("a")

	f.act("h", core.PauseGroup)
	f.act("h", core.ResumeGroup)
	f.wantNoGroup("h")
	equal(f, "groups", f.info().Groups, 0)
}

func testPausedDrains(f *fixture) {
	f.add("g", "a")
	l := f.claim("a")
	f.act("g", core.PauseGroup)
	f.complete(l)
	equal(f, "paused", f.group("g").Paused, true)
	f.claimNothing()
	equal(f, "paused", f.group("g").Paused, true)
	f.add("g", "b")
	f.claimNothing()
	f.move(core.StateGone, "b")
	equal(f, "paused", f.group("g").Paused, true)
	f.act("g", core.ResumeGroup)
	f.wantNoGroup("g")
}

func testActsIdempotent(f *fixture) {
	f.add("g", "a")
	for _, act := range []core.GroupAct{core.ResumeGroup, core.ReleaseGroup, core.PauseGroup, core.HoldGroup} {
		f.act("g", act)
		f.unchanged("the same act again", func() { f.act("g", act) })
	}
	f.act("g", core.ResumeGroup)
	f.act("g", core.ReleaseGroup)
	f.wantServed("a")
}

func testActsOnNothing(f *fixture) {
	acts := []core.GroupAct{core.ResumeGroup, core.ReleaseGroup, core.SkipHead}
	for _, act := range acts {
		f.wantErr(f.b.ActOnGroup(f.ctx, f.queue, "g", act), core.ErrNotFound)
	}
	f.add("h", "a")
	f.put(core.NewJob{Group: "g", ID: "aside", Delay: hour})
	f.unchanged("an act on no group", func() {
		for _, act := range acts {
			f.wantErr(f.b.ActOnGroup(f.ctx, f.queue, "g", act), core.ErrNotFound)
		}
	})
}

func testPauseBoth(f *fixture) {
	f.add("g", "a")
	f.pauseQueue()
	f.act("g", core.PauseGroup)
	f.resumeQueue()
	f.claimNothing()
	f.pauseQueue()
	f.act("g", core.ResumeGroup)
	f.resumeQueue()
	f.wantServed("a")
}

func testSkipHead(f *fixture) {
	f.add("g", "a", "b", "c")
	f.act("g", core.SkipHead)
	f.wantState("a", core.StateCancelled)
	f.act("g", core.SkipHead)
	f.wantState("b", core.StateCancelled)
	equal(f, "counters", f.counted(), core.DayStats{Cancelled: 2})
	f.wantServed("c")
	// The skipped are not lost: they can be redriven.
	f.move(core.StatePending, "b")
	f.wantServed("b")
}

func testSkipHeadRunning(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.unchanged("a refused skip", func() {
		f.wantErr(f.b.ActOnGroup(f.ctx, f.queue, "g", core.SkipHead), core.ErrWrongState)
	})
	f.complete(l)
	f.act("g", core.SkipHead)
	f.wantState("b", core.StateCancelled)
}

// The head is what stands in front, due or not.
func testSkipHeadParked(f *fixture) {
	f.add("g", "a", "b")
	f.put(core.NewJob{Group: "h", ID: "s", Delay: hour, Scheduling: core.Strict})
	f.retry(f.claim("a"), hour)
	f.act("g", core.SkipHead)
	f.act("h", core.SkipHead)
	f.wantState("a", core.StateCancelled)
	f.wantState("s", core.StateCancelled)
	f.wantNoGroup("h")
	f.wantServed("b")
}

func testSkipHeadAside(f *fixture) {
	f.add("g", "a", "b", "c")
	f.act("g", core.PauseGroup)
	f.act("g", core.HoldGroup)
	f.act("g", core.SkipHead)
	f.wantState("a", core.StateCancelled)
	info := f.group("g")
	equal(f, "paused", info.Paused, true)
	equal(f, "held", info.Held, true)
	f.claimNothing()
	f.act("g", core.ResumeGroup)
	f.claimNothing()
	f.act("g", core.ReleaseGroup)
	f.wantServed("b", "c")
}
