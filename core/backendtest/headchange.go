package backendtest

import (
	"github.com/rota-queue/rota/core"
)

// headChangeTests are about a group's turn when its head changes for another
// reason than a settle.
var headChangeTests = []test{
	{"WaitingGroupKeepsTurn", testTurnKept},
	{"ParkedGroupIsDueNow", testParkedBecomesDue},
	{"NextHeadNotDue", testNextHeadNotDue},
	{"RedrivenInFrontOfWaiting", testRedrivenKeepsTurn},
	{"RedrivenInFrontOfParked", testRedrivenFreesParked},
	{"ScheduledBehindParked", testJoinBehindParked},
	{"OtherJobsChangeNothing", testOthersChangeNothing},
	{"LeaseStands", testLeaseStands},
	{"ResumedGroup", testResumedTurn},
	{"ReleasedGroup", testReleasedTurn},
	{"LastJobGoes", testLastJobGoes},
}

// headRemovals take the head of group g away; its id is a.
var headRemovals = map[string]func(f *fixture){
	"cancel": func(f *fixture) { f.move(core.StateCancelled, "a") },
	"dead":   func(f *fixture) { f.move(core.StateDead, "a") },
	"delete": func(f *fixture) { f.move(core.StateGone, "a") },
	"skip":   func(f *fixture) { f.act("g", core.SkipHead) },
}

// A group that waits loses nothing when its head is taken away.
func testTurnKept(f *fixture) {
	for name, remove := range headRemovals {
		f := f.otherQueue()
		f.Log(name)
		f.configure(strictTurns)
		f.add("g", "a", "b")
		f.add("h", "c")
		due := f.group("g").DueSince
		remove(f)
		equal(f, "due since", clock(f.group("g").DueSince), clock(due))
		f.claimEach("b", "c")
	}
}

// A group that was parked for its head's sake enters now when that is gone.
func testParkedBecomesDue(f *fixture) {
	ways := map[string]func(f *fixture){
		"run now": func(f *fixture) { f.move(core.StatePending, "a") },
	}
	for name, remove := range headRemovals {
		ways[name] = remove
	}
	for name, way := range ways {
		f := f.otherQueue()
		f.Log(name)
		f.configure(strictTurns)
		f.add("g", "a", "b")
		f.add("h", "h1", "h2")
		f.retry(f.claim("a"), hour)
		f.complete(f.claim("h1"))
		from := f.now()
		way(f)
		f.within("due since", f.group("g").DueSince, from, f.now())
		f.add("new", "n")
		want := "b"
		if name == "run now" {
			want = "a"
		}
		f.claimEach("h2", want, "n")
	}
}

func testNextHeadNotDue(f *fixture) {
	for name, remove := range headRemovals {
		f := f.otherQueue()
		f.Log(name)
		f.add("g", "a")
		f.put(core.NewJob{Group: "g", ID: "s", Delay: hour, Scheduling: core.Strict})
		remove(f)
		info := f.group("g")
		equal(f, "head", info.Head, "s")
		equal(f, "due since", clock(info.DueSince), clock(f.job("s").RunAt))
		f.claimNothing()
	}
}

func testRedrivenKeepsTurn(f *fixture) {
	f.configure(strictTurns)
	f.add("g", "a", "b")
	f.add("h", "h1", "h2")
	f.kill(f.claim("a"))
	due := f.group("g").DueSince
	f.complete(f.claim("h1"))
	f.move(core.StatePending, "a")
	equal(f, "due since", clock(f.group("g").DueSince), clock(due))
	f.claimEach("a", "h2")
}

func testRedrivenFreesParked(f *fixture) {
	f.configure(strictTurns)
	f.add("g", "a", "b")
	f.kill(f.claim("a"))
	f.retry(f.claim("b"), hour)
	f.claimNothing()
	from := f.now()
	f.move(core.StatePending, "a")
	f.within("due since", f.group("g").DueSince, from, f.now())
	f.complete(f.claim("a"))
	equal(f, "parked again", clock(f.group("g").DueSince), clock(f.job("b").RunAt))
	f.claimNothing()
}

// A job that falls due and joins behind a parked head does not free the group.
func testJoinBehindParked(f *fixture) {
	f.add("g", "a")
	f.retry(f.claim("a"), hour)
	f.put(core.NewJob{Group: "g", ID: "s", Delay: core.MinLease})
	f.passes(f.job("s").RunAt)
	f.claimNothing()
	equal(f, "line", f.line("g"), []string{"a", "s"})
	equal(f, "due since", clock(f.group("g").DueSince), clock(f.job("a").RunAt))
}

// What happens behind the head does not move the group.
func testOthersChangeNothing(f *fixture) {
	f.add("g", "dead", "a", "b", "c", "d")
	f.add("h", "h1")
	l := f.claim("dead")
	f.kill(l)
	due := f.group("g").DueSince
	f.move(core.StateCancelled, "b")
	f.move(core.StateGone, "c")
	f.move(core.StateDead, "d")
	f.move(core.StateGone, "dead")
	f.move(core.StatePending, "d")
	equal(f, "due since", clock(f.group("g").DueSince), clock(due))
	f.wantServed("h1", "a", "d")
}

func testLeaseStands(f *fixture) {
	f.add("g", "dead", "a", "b")
	f.kill(f.claim("dead"))
	l := f.claim("a")
	f.move(core.StatePending, "dead")
	f.move(core.StateGone, "b")
	f.act("g", core.PauseGroup)
	f.act("g", core.ResumeGroup)
	f.act("g", core.HoldGroup)
	f.act("g", core.ReleaseGroup)
	info := f.group("g")
	equal(f, "due since", clock(info.DueSince), clock(l.Until))
	equal(f, "head", info.Head, "a")
	f.claimNothing()
	f.complete(l)
	f.wantServed("dead")
}

// A group that is resumed has lost nothing to those that came after the resume.
func testResumedTurn(f *fixture) {
	f.configure(strictTurns)
	f.add("h", "h1")
	f.add("g", "a")
	f.act("g", core.PauseGroup)
	equal(f, "due while paused", f.group("g").DueSince.IsZero(), true)
	f.act("g", core.ResumeGroup)
	f.add("new", "n")
	f.claimEach("h1", "a", "n")
}

func testReleasedTurn(f *fixture) {
	f.configure(strictTurns)
	f.add("h", "h1", "h2")
	f.put(core.NewJob{Group: "g", ID: "a", OnExhausted: core.Hold})
	f.add("g", "b")
	f.complete(f.claim("h1"))
	f.kill(f.claim("a"))
	equal(f, "due while held", f.group("g").DueSince.IsZero(), true)
	f.act("g", core.ReleaseGroup)
	f.add("new", "n")
	f.claimEach("h2", "b", "n")
}

// When the last job of a group is taken away, so is the group.
func testLastJobGoes(f *fixture) {
	for name, remove := range headRemovals {
		f := f.otherQueue()
		f.Log(name)
		f.add("g", "a")
		remove(f)
		f.wantNoGroup("g")
		f.claimNothing()
		f.add("g", "b")
		f.wantServed("b")
	}
}
