package backendtest

import (
	"fmt"

	"github.com/rota-queue/rota/core"
)

var holdTests = []test{
	{"ByDead", testHoldByDead},
	{"ByLastRetry", testHoldByRetry},
	{"ByPerson", testHoldByPerson},
	{"PolicyOfJobAndQueue", testExhaustedPolicies},
	{"ReleasedByMove", testHoldReleasedByMove},
	{"NotReleasedByOthers", testHoldNotReleased},
	{"NotReleasedByPurge", testHoldNotPurged},
	{"DeadNotKept", testHoldDeadNotKept},
	{"Ungrouped", testHoldUngrouped},
	{"HoldIsNoPause", testHoldAndPause},
	{"WhileRunning", testHoldWhileRunning},
	{"HeldAgain", testHeldAgain},
}

// hold holds group g, whose line is b, c, by job a.
func (f *fixture) hold() {
	f.Helper()
	f.put(core.NewJob{Group: "g", ID: "a", OnExhausted: core.Hold})
	f.add("g", "b", "c")
	equal(f, "state", f.kill(f.claim("a")), core.StateDead)
	f.wantHeld("a")
}

// wantHeld fails the test unless group g is held by a job; "" for a person.
func (f *fixture) wantHeld(by string) {
	f.Helper()
	info := f.group("g")
	equal(f, "held", info.Held, true)
	equal(f, "held by", info.HeldBy, by)
	equal(f, "due", info.DueSince.IsZero(), true)
	f.claimNothing()
}

func testHoldByDead(f *fixture) {
	f.hold()
	f.wantState("a", core.StateDead)
	equal(f, "line", f.line("g"), []string{"b", "c"})
	f.act("g", core.ReleaseGroup)
	equal(f, "held", f.group("g").Held, false)
	equal(f, "held by", f.group("g").HeldBy, "")
	f.wantState("a", core.StateDead)
	f.wantServed("b", "c")
}

func testHoldByRetry(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: 2, OnExhausted: core.Hold})
	f.add("g", "b")
	f.retry(f.claim("a"), 0)
	equal(f, "held with attempts left", f.group("g").Held, false)
	equal(f, "state", f.retry(f.claim("a"), hour), core.StateDead)
	f.wantHeld("a")
}

func testHoldByPerson(f *fixture) {
	f.add("g", "a", "b")
	f.act("g", core.HoldGroup)
	f.wantHeld("")
	f.act("g", core.ReleaseGroup)
	f.wantServed("a", "b")

	f.act("g", core.HoldGroup) // an empty group, too
	f.add("g", "c")
	f.wantHeld("")
	f.act("g", core.ReleaseGroup)
	f.wantServed("c")
	f.wantNoGroup("g")
}

func testExhaustedPolicies(f *fixture) {
	for _, c := range []struct {
		queue, job core.ExhaustedPolicy
		holds      bool
	}{
		{core.ExhaustedDefault, core.ExhaustedDefault, false},
		{core.Hold, core.ExhaustedDefault, true},
		{core.DeadLetter, core.ExhaustedDefault, false},
		{core.DeadLetter, core.Hold, true},
		{core.Hold, core.DeadLetter, false},
	} {
		f := f.otherQueue()
		f.configure(core.QueueConfig{OnExhausted: c.queue})
		f.put(core.NewJob{Group: "g", ID: "a", OnExhausted: c.job})
		f.add("g", "b")
		f.kill(f.claim("a"))
		f.Logf("queue %d, job %d", c.queue, c.job)
		equal(f, "held", f.group("g").Held, c.holds)
	}
}

// Whatever a person does with the job that holds the group ends the hold.
func testHoldReleasedByMove(f *fixture) {
	for to, served := range map[core.State][]string{
		core.StatePending:   {"a", "b", "c"},
		core.StateCancelled: {"b", "c"},
		core.StateGone:      {"b", "c"},
	} {
		for _, line := range []string{"waits", "comes later"} {
			f := f.otherQueue()
			f.Logf("moved to %s, and the line %s", to, line)
			if line == "waits" {
				f.hold()
			} else {
				f.put(core.NewJob{Group: "g", ID: "a", OnExhausted: core.Hold})
				f.kill(f.claim("a"))
				f.add("g", "b", "c")
				f.wantHeld("a")
			}
			f.move(to, "a")
			info := f.group("g")
			equal(f, "held", info.Held, false)
			equal(f, "held by", info.HeldBy, "")
			f.wantServed(served...)
		}
	}
}

// What happens to other jobs does not.
func testHoldNotReleased(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "dead"})
	f.kill(f.claim("dead"))
	f.hold()
	f.move(core.StateCancelled, "b")
	f.wantHeld("a")
	f.move(core.StatePending, "b")
	f.wantHeld("a")
	f.move(core.StatePending, "dead") // enters in front
	f.wantHeld("a")
	f.act("g", core.SkipHead)
	f.wantState("dead", core.StateCancelled)
	f.wantHeld("a")
	f.wantErr(f.tryMove(core.StateDead, "a").Errs[0], core.ErrWrongState)
	f.wantHeld("a")
	f.move(core.StateGone, "b", "c")
	f.wantHeld("a") // empty now
	f.add("g", "d")
	f.wantHeld("a")
	f.act("g", core.ReleaseGroup)
	f.wantServed("d")
}

func testHoldNotPurged(f *fixture) {
	f.configure(core.QueueConfig{DeadRetention: core.MinLease})
	f.hold()
	f.purge(1)
	f.wantState("a", core.StateGone)
	f.wantHeld("a")
	f.act("g", core.ReleaseGroup)
	f.wantServed("b", "c")
}

func testHoldDeadNotKept(f *fixture) {
	f.configure(core.QueueConfig{DeadRetention: core.None})
	f.put(core.NewJob{Group: "g", ID: "a", OnExhausted: core.Hold})
	equal(f, "state", f.kill(f.claim("a")), core.StateGone)
	f.wantHeld("a")
	f.add("g", "b")
	f.wantHeld("a")
	f.act("g", core.ReleaseGroup)
	f.wantServed("b")
}

// Without a group there is nothing to hold.
func testHoldUngrouped(f *fixture) {
	f.configure(core.QueueConfig{OnExhausted: core.Hold})
	f.add("", "a", "b")
	f.kill(f.claim("a"))
	f.wantState("a", core.StateDead)
	f.wantServed("b")
	f.move(core.StatePending, "a")
	f.wantServed("a")
	equal(f, "groups", f.info().Groups, 0)
}

// A group may be paused and held, and each ends by itself.
func testHoldAndPause(f *fixture) {
	for round := range 2 {
		f := f.otherQueue()
		f.hold()
		f.act("g", core.PauseGroup)
		info := f.group("g")
		equal(f, "paused and held", fmt.Sprint(info.Paused, info.Held), "true true")
		ends := []core.GroupAct{core.ResumeGroup, core.ReleaseGroup}
		f.act("g", ends[round])
		f.claimNothing()
		info = f.group("g")
		equal(f, "paused", info.Paused, round == 1)
		equal(f, "held", info.Held, round == 0)
		f.act("g", ends[1-round])
		f.wantServed("b", "c")
	}
}

func testHoldWhileRunning(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.act("g", core.HoldGroup)
	f.check(f.extend(l, hour).Err)
	f.complete(l)
	f.wantHeld("")
	f.act("g", core.ReleaseGroup)
	f.wantServed("b")
}

// A redriven job that fails again holds its group again.
func testHeldAgain(f *fixture) {
	f.hold()
	for range 3 {
		f.move(core.StatePending, "a")
		f.kill(f.claim("a"))
		f.wantHeld("a")
	}
	f.move(core.StateGone, "a")
	f.wantServed("b", "c")
}
