package backendtest

import (
	"github.com/rota-queue/rota/core"
)

// quietTests publish into a group that may not be claimed. It stays so, and its
// turn stays where it was.
var quietTests = []test{
	{"Leased", quietTest(
		func(f *fixture) { f.add("g", "a", "b"); f.claim("a") },
		nil)},
	{"Parked", quietTest(
		func(f *fixture) { f.add("g", "a", "b"); f.retry(f.claim("a"), hour) },
		func(f *fixture) { f.move(core.StatePending, "a") })},
	{"ParkedBySnooze", quietTest(
		func(f *fixture) { f.add("g", "a", "b"); f.snooze(f.claim("a"), hour) },
		func(f *fixture) { f.move(core.StatePending, "a") })},
	{"ParkedByStrict", quietTest(
		func(f *fixture) {
			f.put(core.NewJob{Group: "g", ID: "a", Delay: hour, Scheduling: core.Strict})
			f.add("g", "b")
		},
		func(f *fixture) { f.move(core.StatePending, "a") })},
	{"Paused", quietTest(
		func(f *fixture) { f.add("g", "a", "b"); f.act("g", core.PauseGroup) },
		func(f *fixture) { f.act("g", core.ResumeGroup) })},
	{"PausedAndMet", quietTest(
		func(f *fixture) { f.add("g", "a", "b"); f.act("g", core.PauseGroup); f.claimNothing() },
		func(f *fixture) { f.act("g", core.ResumeGroup) })},
	{"PausedEmpty", quietTest(
		func(f *fixture) {
			f.act("g", core.PauseGroup)
			f.add("g", "a", "b")
		},
		func(f *fixture) { f.act("g", core.ResumeGroup) })},
	{"PausedAndDrained", quietTest(
		func(f *fixture) {
			f.add("g", "z")
			l := f.claim("z")
			f.act("g", core.PauseGroup)
			f.complete(l)
			f.claimNothing()
			f.add("g", "a", "b")
		},
		func(f *fixture) { f.act("g", core.ResumeGroup) })},
	{"Held", quietTest(
		func(f *fixture) {
			f.put(core.NewJob{Group: "g", ID: "z", OnExhausted: core.Hold})
			f.add("g", "a", "b")
			f.kill(f.claim("z"))
		},
		func(f *fixture) { f.act("g", core.ReleaseGroup) })},
	{"HeldAndEmpty", quietTest(
		func(f *fixture) {
			f.put(core.NewJob{Group: "g", ID: "z", OnExhausted: core.Hold})
			f.kill(f.claim("z"))
			f.claimNothing()
			f.add("g", "a", "b")
		},
		func(f *fixture) { f.act("g", core.ReleaseGroup) })},
	{"HeldByPerson", quietTest(
		func(f *fixture) { f.add("g", "a", "b"); f.act("g", core.HoldGroup) },
		func(f *fixture) { f.act("g", core.ReleaseGroup) })},
	{"QueuePaused", testQuietQueue},
	{"WaitingKeepsTurn", testPublishKeepsTurn},
}

// quietTest blocks group g with its line a, b; open makes it claimable again.
func quietTest(block, open func(f *fixture)) func(*fixture) {
	return func(f *fixture) {
		f.configure(core.QueueConfig{OnExhausted: core.DeadLetter})
		block(f)
		due := f.group("g").DueSince
		f.put(core.NewJob{Group: "g", ID: "c"})
		f.put(core.NewJob{Group: "g", ID: "d", Priority: core.MaxPriority})
		f.publish(core.NewJob{Group: "g", ID: "e"}, core.NewJob{Group: "other", ID: "o"})
		f.put(core.NewJob{Group: "g", ID: "s", Delay: hour})
		f.put(core.NewJob{Group: "g", ID: "t", Delay: hour, Scheduling: core.Strict})
		f.claimBatch("o")
		f.claimNothing()
		equal(f, "due since", clock(f.group("g").DueSince), clock(due))
		equal(f, "line", f.line("g"), []string{"a", "b", "c", "d", "e", "t"})
		if open == nil {
			return
		}
		open(f)
		f.wantServed("a", "b", "c", "d", "e")
	}
}

func testQuietQueue(f *fixture) {
	f.add("g", "a")
	_, err := f.b.PauseQueue(f.ctx, f.queue)
	f.check(err)
	f.add("g", "b")
	f.add("h", "c")
	f.add("", "u")
	_, err = f.b.Claim(f.ctx, core.ClaimRequest{Queue: f.queue, Max: 1, Lease: hour})
	f.wantErr(err, core.ErrQueuePaused)
	_, err = f.b.ResumeQueue(f.ctx, f.queue)
	f.check(err)
	f.claimEach("a", "c", "u")
}

// A publish into a group that waits neither advances nor delays it.
func testPublishKeepsTurn(f *fixture) {
	for _, start := range []core.QueueConfig{strictTurns, {HeadStart: hour}, {HeadStart: core.Forever}} {
		f := f.otherQueue()
		f.configure(start)
		f.add("g", "g1", "g2")
		f.add("h", "h1")
		f.add("k", "k1")
		f.complete(f.claim("g1"))
		due := map[string]string{}
		for _, group := range []string{"g", "h", "k"} {
			due[group] = clock(f.group(group).DueSince)
		}
		f.add("k", "k2")
		f.add("g", "g3")
		f.add("h", "h2")
		for group, want := range due {
			equal(f, "due since of "+group, clock(f.group(group).DueSince), want)
		}
		f.claimEach("h1", "k1", "g2")
	}
}
