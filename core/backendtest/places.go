package backendtest

import (
	"time"

	"github.com/rota-queue/rota/core"
)

var placeTests = []test{
	{"EveryWayBack", testPlaceKept},
	{"BlockParksTheGroup", testBlock},
	{"SkipLetsTheGroupGoOn", testSkip},
	{"SkipRejoinsAtFront", testSkipRejoins},
	{"SkipKeepsOrderAmongSkipped", testSkippedAmongThemselves},
	{"SkipWithoutDelay", testSkipWithoutDelay},
	{"PolicyOfJobAndQueue", testFailurePolicies},
	{"RedriveToOldPlace", testRedrivePlace},
	{"RedriveBehindRunning", testRedriveBehindRunning},
	{"RedriveCompleted", testRedriveCompleted},
	{"RunNowKeepsPlace", testRunNowPlace},
	{"RunNowOfSkipped", testRunNowSkipped},
}

// Whatever ends a lease without ending the job, the job is in front again.
func testPlaceKept(f *fixture) {
	for name, end := range map[string]func(f *fixture, l core.Lease){
		"retry":   func(f *fixture, l core.Lease) { f.retry(l, 0) },
		"release": func(f *fixture, l core.Lease) { f.release(l) },
		"snooze":  func(f *fixture, l core.Lease) { f.snooze(l, 0) },
		"expiry":  func(f *fixture, l core.Lease) { f.expire(l) },
		"delayed retry": func(f *fixture, l core.Lease) {
			f.retry(l, core.MinLease)
			f.passes(f.job(l.JobID).RunAt)
		},
		"delayed snooze": func(f *fixture, l core.Lease) {
			f.snooze(l, core.MinLease)
			f.passes(f.job(l.JobID).RunAt)
		},
	} {
		f := f.otherQueue()
		f.add("g", "a", "b", "c")
		f.complete(f.claim("a"))
		end(f, f.claim("b"))
		f.Logf("after %s", name)
		equal(f, "line after "+name, f.line("g"), []string{"b", "c"})
		f.wantServed("b", "c")
	}
}

// Block keeps the job in front, and nothing of the group runs until it may.
func testBlock(f *fixture) {
	for _, end := range []func(core.Lease, time.Duration) core.State{f.retry, f.snooze} {
		f.add("g", "a", "b")
		state := end(f.claim("a"), brief)
		f.wantState("a", state)
		f.claimNothing()
		runAt := f.job("a").RunAt
		equal(f, "head", f.group("g").Head, "a")
		equal(f, "due since", clock(f.group("g").DueSince), clock(runAt))
		f.passes(runAt)
		f.wantServed("a", "b")
	}
}

// Skip takes the job out of the line for the time of its delay.
func testSkip(f *fixture) {
	f.configure(core.QueueConfig{OnFailure: core.Skip})
	f.add("g", "a", "b", "c")
	equal(f, "state", f.retry(f.claim("a"), hour), core.StateRetrying)
	equal(f, "state", f.snooze(f.claim("b"), hour), core.StateScheduled)
	equal(f, "line", f.line("g"), []string{"c"})
	info := f.group("g")
	equal(f, "depth", info.Depth, 1)
	equal(f, "head", info.Head, "c")
	f.wantServed("c")
	f.wantNoGroup("g")
	f.wantState("a", core.StateRetrying)
	f.wantState("b", core.StateScheduled)
}

func testSkipRejoins(f *fixture) {
	f.configure(core.QueueConfig{OnFailure: core.Skip})
	f.add("g", "a", "b", "c", "d")
	f.retry(f.claim("a"), brief)
	b := f.claim("b")
	f.passes(f.job("a").RunAt)
	f.claimNothing() // the claim may join it, the lease of b stands
	f.complete(b)
	f.wantServed("a", "c", "d")
}

// Jobs that stood aside come back in the order of their places, not in that of
// their delays.
func testSkippedAmongThemselves(f *fixture) {
	f.configure(core.QueueConfig{OnFailure: core.Skip})
	f.add("g", "a", "b", "c", "d")
	f.retry(f.claim("a"), 2*brief)
	f.snooze(f.claim("b"), brief)
	f.retry(f.claim("c"), core.MinLease)
	f.passes(f.job("a").RunAt)
	f.wantServed("a", "b", "c", "d")
}

func testSkipWithoutDelay(f *fixture) {
	f.configure(core.QueueConfig{OnFailure: core.Skip})
	f.add("g", "a", "b")
	equal(f, "state", f.retry(f.claim("a"), 0), core.StatePending)
	equal(f, "state", f.snooze(f.claim("a"), 0), core.StatePending)
	equal(f, "line", f.line("g"), []string{"a", "b"})
	f.wantServed("a", "b")
}

// The job's own policy stands before the queue's, and that before the default.
func testFailurePolicies(f *fixture) {
	for _, c := range []struct {
		queue, job core.FailurePolicy
		skips      bool
	}{
		{core.FailureDefault, core.FailureDefault, false},
		{core.Skip, core.FailureDefault, true},
		{core.Block, core.FailureDefault, false},
		{core.Block, core.Skip, true},
		{core.Skip, core.Block, false},
	} {
		f := f.otherQueue()
		f.configure(core.QueueConfig{OnFailure: c.queue})
		f.put(core.NewJob{Group: "g", ID: "a", OnFailure: c.job})
		f.add("g", "b")
		f.retry(f.claim("a"), hour)
		want := []string{}
		if c.skips {
			want = []string{"b"}
		}
		f.Logf("queue %d, job %d", c.queue, c.job)
		f.wantServed(want...)
	}
}

// A dead job that is redriven stands where it stood, not at the end.
func testRedrivePlace(f *fixture) {
	f.add("g", "a", "b", "c", "d", "e")
	f.kill(f.claim("a"))
	f.kill(f.claim("b"))
	c := f.claim("c")
	f.settle(c, core.Outcome{Action: core.Cancel})
	f.move(core.StatePending, "c")
	f.move(core.StatePending, "b")
	f.move(core.StatePending, "a")
	equal(f, "line", f.line("g"), []string{"a", "b", "c", "d", "e"})
	f.wantServed("a", "b", "c", "d", "e")
}

func testRedriveBehindRunning(f *fixture) {
	f.add("g", "a", "b", "c")
	f.kill(f.claim("a"))
	b := f.claim("b")
	f.move(core.StatePending, "a")
	equal(f, "head while b runs", f.group("g").Head, "b")
	f.claimNothing()
	f.complete(b)
	f.wantServed("a", "c")
}

func testRedriveCompleted(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	f.add("g", "a", "b", "c")
	f.complete(f.claim("a"))
	f.complete(f.claim("b"))
	f.move(core.StatePending, "b")
	f.move(core.StatePending, "a")
	f.wantServed("a", "b", "c")
}

// Moving a parked job to pending ends its delay and keeps its place.
func testRunNowPlace(f *fixture) {
	f.add("g", "a", "b")
	f.retry(f.claim("a"), hour)
	f.claimNothing()
	f.move(core.StatePending, "a")
	f.wantState("a", core.StatePending)
	f.wantServed("a", "b")
}

// A job that stands aside after it was in line has its place from then.
func testRunNowSkipped(f *fixture) {
	f.configure(core.QueueConfig{OnFailure: core.Skip})
	f.add("g", "a", "b", "c")
	f.retry(f.claim("a"), hour)
	f.snooze(f.claim("b"), hour)
	f.move(core.StatePending, "b")
	f.move(core.StatePending, "a")
	equal(f, "line", f.line("g"), []string{"a", "b", "c"})
	f.wantServed("a", "b", "c")
}
