package backendtest

import (
	"github.com/rota-queue/rota/core"
)

var headStartTests = []test{
	{"Default", testHeadStartDefault},
	{"None", testHeadStartNone},
	{"IsBounded", testHeadStartBounded},
	{"Forever", testHeadStartForever},
	{"DrainedIsNew", testDrainedIsNew},
	{"ClaimedBeforeHasNone", testClaimedHasNone},
	{"ScheduledGroup", testHeadStartScheduled},
	{"ScheduledGroupStrictTurns", testStrictTurnScheduled},
	{"StrictScheduleHasNone", testHeadStartStrict},
	{"NewAmongThemselves", testNewAmongThemselves},
}

// A new group goes before one that was served a moment ago.
func testHeadStartDefault(f *fixture) {
	from := f.now()
	f.add("g", "g1", "g2")
	f.within("entry", f.group("g").DueSince, from.Add(-core.DefaultHeadStart), f.now().Add(-core.DefaultHeadStart))
	f.complete(f.claim("g1"))
	f.add("new", "n1", "n2")
	f.wantServed("n1", "g2", "n2")
}

// Without a head start turns are strict: the new group has waited less.
func testHeadStartNone(f *fixture) {
	f.configure(strictTurns)
	f.add("g", "g1", "g2", "g3")
	f.complete(f.claim("g1"))
	from := f.now()
	f.add("new", "n1", "n2")
	f.within("entry", f.group("new").DueSince, from, f.now())
	f.wantServed("g2", "n1", "g3", "n2")
}

// No group waits more than HeadStart longer than its turn.
func testHeadStartBounded(f *fixture) {
	f.configure(core.QueueConfig{HeadStart: brief})
	f.add("g", "g1", "g2")
	f.complete(f.claim("g1"))
	f.passes(f.now().Add(2 * brief))
	f.add("new", "n1")
	f.wantServed("g2", "n1")
}

// Groups that were never claimed stand before all others, in their own order.
func testHeadStartForever(f *fixture) {
	f.configure(core.QueueConfig{HeadStart: 1000 * hour})
	f.add("g", "g1")
	f.configure(core.QueueConfig{HeadStart: core.Forever})
	f.add("h", "h1", "h2")
	f.add("k", "k1", "k2")
	f.claimEach("h1", "k1")
	f.add("m", "m1")
	f.claimEach("m1", "g1")
	equal(f, "configured", f.info().Config.HeadStart, core.Forever)
}

// A group that drained and comes back is a new one.
func testDrainedIsNew(f *fixture) {
	f.add("other", "o1", "o2")
	f.add("g", "g1")
	f.complete(f.claim("o1"))
	f.complete(f.claim("g1"))
	f.add("g", "g2")
	f.wantServed("g2", "o2")
}

// A job that was ever claimed brings no head start into its empty group, or a
// failing job would be served in a hot loop.
func testClaimedHasNone(f *fixture) {
	for name, again := range map[string]func(f *fixture, l core.Lease){
		"redriven": func(f *fixture, l core.Lease) {
			f.kill(l)
			f.wantNoGroup("g")
			f.move(core.StatePending, "g1")
		},
		"skipped": func(f *fixture, l core.Lease) {
			f.retry(l, core.MinLease)
			f.wantNoGroup("g")
			f.passes(f.job("g1").RunAt)
		},
		"skipped and run now": func(f *fixture, l core.Lease) {
			f.retry(l, hour)
			f.move(core.StatePending, "g1")
		},
	} {
		f := f.otherQueue()
		f.Log(name)
		f.configure(core.QueueConfig{OnFailure: core.Skip, HeadStart: hour})
		f.add("other", "o1", "o2")
		f.add("g", "g1")
		f.complete(f.claim("o1"))
		again(f, f.claim("g1"))
		f.add("new", "n")
		f.claimEach("n", "o2", "g1")
	}
}

// A scheduled job that falls due in an empty group has its head start too.
func testHeadStartScheduled(f *fixture) {
	f.configure(core.QueueConfig{HeadStart: hour})
	f.add("g", "g1", "g2")
	f.complete(f.claim("g1"))
	f.put(core.NewJob{Group: "s", ID: "s1", Delay: brief})
	f.passes(f.job("s1").RunAt)
	f.add("new", "n1")
	f.wantServed("s1", "n1", "g2")
}

// Without one its turn is its run time, whenever it is noticed.
func testStrictTurnScheduled(f *fixture) {
	f.configure(strictTurns)
	f.add("early", "e1", "e2")
	f.add("late", "l1", "l2")
	leases := f.claimBatch("e1", "l1")
	f.complete(leases[0])
	f.put(core.NewJob{Group: "s", ID: "s1", Delay: brief})
	f.passes(f.job("s1").RunAt)
	f.complete(leases[1])
	f.claimEach("e2", "s1", "l2")
}

// A strict job in an empty group is due when it is due, not a head start before.
func testHeadStartStrict(f *fixture) {
	f.configure(core.QueueConfig{HeadStart: hour})
	f.put(core.NewJob{Group: "s", ID: "s1", Delay: brief, Scheduling: core.Strict})
	runAt := f.job("s1").RunAt
	equal(f, "due since", clock(f.group("s").DueSince), clock(runAt))
	f.add("g", "g1", "g2")
	f.complete(f.claim("g1")) // s1 is not due, or due later than this
	f.passes(runAt)
	f.add("new", "n1")
	f.claim("n1")
	equal(f, "due since", clock(f.group("s").DueSince), clock(runAt))
	leases := f.claimUpTo(2)
	equal(f, "claimed", len(leases), 2)
}

// New groups are served in the order in which they came.
func testNewAmongThemselves(f *fixture) {
	for _, start := range []core.QueueConfig{{}, strictTurns, {HeadStart: hour}, {HeadStart: core.Forever}} {
		f := f.otherQueue()
		f.configure(start)
		order := []string{"m", "a", "z", "c", "b"}
		for _, g := range order {
			f.add(g, g)
		}
		f.wantServed(order...)
	}
}
