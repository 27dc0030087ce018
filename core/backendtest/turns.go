package backendtest

import (
	"fmt"

	"github.com/rota-queue/rota/core"
)

var turnTests = []test{
	{"Rotation", testRotation},
	{"RotationInBatches", testRotationInBatches},
	{"ServedGoesBehind", testServedGoesBehind},
	{"FailingGroupIsNotHot", testFailingGroup},
	{"ParkedEntersWhenDue", testParkedTurn},
	{"ExpiredEntersAtLeaseEnd", testExpiredTurn},
	{"UngroupedEntersNow", testUngroupedTurn},
	{"UngroupedGoesBehind", testUngroupedBehind},
	{"WaitingIsNotOvertaken", testNotOvertaken},
	{"LongWaitersFirst", testLongWaiters},
	{"DueSince", testDueSince},
	{"GoneBeforeItsTurn", testGoneBeforeTurn},
	{"StrictEntersWhenDue", testStrictTurn},
	{"TurnOutlastsHeadStart", testTurnOutlasts},
}

// strictTurns makes new groups enter at the time of their publish.
var strictTurns = core.QueueConfig{HeadStart: core.None}

// Each group is served once before any is served again, in the same order each
// time, however many jobs each has.
func testRotation(f *fixture) {
	var want []string
	for round := range 4 {
		for g := range 5 {
			if round < 4-g%3 {
				f.add(fmt.Sprint("g", g), fmt.Sprint("g", g, "-", round))
			}
		}
	}
	for round := range 4 {
		for g := range 5 {
			if round < 4-g%3 {
				want = append(want, fmt.Sprint("g", g, "-", round))
			}
		}
	}
	f.wantServed(want...)
}

// A claim of several takes what as many claims of one would have taken.
func testRotationInBatches(f *fixture) {
	for round := range 3 {
		for g := range 7 {
			f.add(fmt.Sprint("g", g), fmt.Sprint("g", g, "-", round))
		}
	}
	var got, want []string
	for range 7 {
		leases := f.claimUpTo(3)
		got = append(got, jobIDs(leases)...)
		f.complete(leases...)
	}
	for round := range 3 {
		for g := range 7 {
			want = append(want, fmt.Sprint("g", g, "-", round))
		}
	}
	equal(f, "jobs in the order they were served", got, want)
	f.claimNothing()
}

// However a lease ends, the group goes behind those that wait.
func testServedGoesBehind(f *fixture) {
	for action := core.Complete; action <= core.Cancel; action++ {
		f := f.otherQueue()
		f.Log(action)
		f.add("g", "g1", "g2")
		f.add("h", "h1", "h2")
		f.add("k", "k1", "k2")
		l := f.claim("g1")
		f.settle(l, core.Outcome{Action: action})
		f.complete(f.claim("h1"))
		f.complete(f.claim("k1"))
		want := "g1"
		if action == core.Complete || action == core.Dead || action == core.Cancel {
			want = "g2"
		}
		f.complete(f.claim(want))
		f.complete(f.claim("h2"))
	}
}

// A group that fails again and again without delay has one turn in three.
func testFailingGroup(f *fixture) {
	f.put(core.NewJob{Group: "bad", ID: "bad", MaxAttempts: core.Unlimited})
	f.add("g", names("g", 5)...)
	f.add("h", names("h", 5)...)
	for i := range 5 {
		f.retry(f.claim("bad"), 0)
		f.complete(f.claim(fmt.Sprintf("g%03d", i)))
		f.complete(f.claim(fmt.Sprintf("h%03d", i)))
	}
}

// A parked group enters when its delay is over, not when it was parked and not
// when somebody notices.
func testParkedTurn(f *fixture) {
	f.add("early", "e1", "e2")
	f.add("parked", "p1")
	f.add("late", "l1", "l2")
	leases := f.claimBatch("e1", "p1", "l1")
	f.complete(leases[0])
	f.retry(leases[1], brief)
	f.passes(f.job("p1").RunAt)
	f.complete(leases[2])
	f.claimEach("e2", "p1", "l2")
}

// A group whose lease ran out has been due since then.
func testExpiredTurn(f *fixture) {
	f.add("early", "e1", "e2")
	f.add("silent", "s1")
	f.add("late", "l1", "l2")
	leases := f.claimBatch("e1", "s1", "l1")
	f.complete(leases[0])
	f.expire(leases[1])
	f.complete(leases[2])
	f.claimEach("e2", "s1", "l2")
}

// A job without a group enters now: behind new groups, which have a head start,
// and in turn with those that were served.
func testUngroupedTurn(f *fixture) {
	f.add("g", "g1", "g2")
	f.add("h", "h1", "h2")
	leases := f.claimBatch("g1", "h1")
	f.complete(leases[0])
	f.add("", "u")
	f.complete(leases[1])
	f.add("new", "n")
	f.claimEach("n", "g2", "u", "h2")
}

func testUngroupedBehind(f *fixture) {
	f.add("", "a", "b", "c")
	f.retry(f.claim("a"), 0)
	f.release(f.claim("b"))
	f.snooze(f.claim("c"), 0)
	f.claimEach("a", "b", "c")
}

// Nothing that is published later overtakes a group whose turn has come, when
// there is no head start.
func testNotOvertaken(f *fixture) {
	f.configure(strictTurns)
	f.add("g", "g1", "g2")
	f.complete(f.claim("g1"))
	for _, id := range names("n", 20) {
		f.add("group-"+id, id)
		f.add("", "u"+id)
	}
	f.claim("g2")
}

// Many groups in every stage of waiting are served by their waiting time.
func testLongWaiters(f *fixture) {
	f.configure(strictTurns)
	groups := names("g", 30)
	for _, g := range groups {
		f.add(g, g+"-1", g+"-2")
	}
	leases := f.claimUpTo(30)
	equal(f, "leases", len(leases), 30)
	var want []string
	for i := range leases { // in another order than they were claimed
		l := leases[i*7%30]
		f.complete(l)
		want = append(want, l.Group+"-2")
	}
	f.wantServed(want...)
}

// DueSince tells what the turns are made by.
func testDueSince(f *fixture) {
	f.configure(core.QueueConfig{HeadStart: hour})
	from := f.now()
	f.add("g", "a", "b")
	f.within("entry", f.group("g").DueSince, from.Add(-hour), f.now().Add(-hour))

	l := f.claim("a")
	equal(f, "while leased", clock(f.group("g").DueSince), clock(l.Until))
	ext := f.extend(l, 2*hour)
	equal(f, "while extended", clock(f.group("g").DueSince), clock(ext.Until))

	from = f.now()
	f.complete(l)
	f.within("after a settle", f.group("g").DueSince, from, f.now())
	f.retry(f.claim("b"), hour)
	equal(f, "while parked", clock(f.group("g").DueSince), clock(f.job("b").RunAt))
}

// A group whose only job was deleted before anybody claimed it leaves no turn
// behind for its next job.
func testGoneBeforeTurn(f *fixture) {
	f.add("b", "x")
	f.move(core.StateGone, "x")
	f.add("a", "a1")
	f.add("b", "b1")
	f.claimEach("a1", "b1")
}

// A group whose first job waits for its time has been due since then, not since a
// head start before the publish.
func testStrictTurn(f *fixture) {
	f.put(core.NewJob{Group: "b", ID: "b1", Delay: brief, Scheduling: core.Strict})
	f.add("a", "a1")
	f.passes(f.job("b1").RunAt)
	f.claimEach("a1", "b1")
}

// Groups that wait keep their turns when the head start is changed, whatever joins
// their lines then.
func testTurnOutlasts(f *fixture) {
	f.add("b", "b1")
	f.add("a", "a1")
	f.configure(core.QueueConfig{HeadStart: hour})
	f.put(core.NewJob{Group: "a", ID: "a2", Delay: brief})
	f.passes(f.job("a2").RunAt)
	f.claimEach("b1", "a1")
}
