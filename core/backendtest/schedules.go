package backendtest

import (
	"time"

	"github.com/rota-queue/rota/core"
)

var scheduleTests = []test{
	{"JoinWhenDue", testJoinWhenDue},
	{"JoinBehindWhatWasThere", testJoinBehind},
	{"JoinInOrderOfRunTime", testJoinOrder},
	{"JoinAlone", testJoinAlone},
	{"StandingAside", testStandingAside},
	{"Strict", testStrict},
	{"StrictBehindOthers", testStrictBehind},
	{"PolicyOfJobAndQueue", testSchedulePolicies},
	{"Ungrouped", testUngroupedSchedule},
	{"PastIsNow", testPastIsNow},
	{"RunNowJoinsNow", testRunNowJoins},
	{"RunNowStrict", testRunNowStrict},
	{"ManyAtOnce", testManyDueAtOnce},
}

// A scheduled job stands behind what was published before its run time and in
// front of what was published after it, whenever the store gets round to it.
func testJoinWhenDue(f *fixture) {
	f.add("g", "a", "b")
	f.put(core.NewJob{Group: "g", ID: "s", Delay: brief})
	f.add("g", "c")
	f.wantState("s", core.StateScheduled)
	f.passes(f.job("s").RunAt)
	f.add("g", "d")
	f.wantServed("a", "b", "c", "s", "d")
}

// The same while the group is busy, and with claims in between.
func testJoinBehind(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Delay: brief})
	f.add("g", "a", "b")
	a := f.claim("a")
	f.passes(f.job("s").RunAt)
	f.claimNothing()
	f.add("g", "c")
	f.complete(a)
	f.complete(f.claim("b"))
	f.complete(f.claim("s"))
	f.complete(f.claim("c"))
}

func testJoinOrder(f *fixture) {
	at := f.now().Add(brief)
	f.publish(
		core.NewJob{Group: "g", ID: "third", RunAt: at},
		core.NewJob{Group: "g", ID: "first", RunAt: at.Add(-50 * time.Millisecond)},
		core.NewJob{Group: "g", ID: "fourth", RunAt: at},
		core.NewJob{Group: "g", ID: "second", RunAt: at.Add(-time.Microsecond)},
	)
	f.passes(at)
	f.wantServed("first", "second", "third", "fourth") // the last two by Seq
}

func testJoinAlone(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Delay: brief})
	f.claimNothing()
	f.passes(f.job("s").RunAt)
	l := f.claim("s")
	equal(f, "state", l.Job.State, core.StateRunning)
	equal(f, "line", f.line("g"), []string{"s"})
	f.complete(l)
	f.wantNoGroup("g")
}

// A job that stands aside is in no line and counts in no group.
func testStandingAside(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Delay: hour})
	f.wantNoGroup("g")
	equal(f, "line", f.line("g"), []string{})
	f.claimNothing()
	f.add("g", "a")
	equal(f, "line", f.line("g"), []string{"a"})
	equal(f, "depth", f.group("g").Depth, 1)
	f.wantServed("a")
	f.wantNoGroup("g")
	equal(f, "scheduled jobs", f.ids(core.JobFilter{State: core.StateScheduled}), []string{"s"})
	equal(f, "scheduled jobs of the group", f.ids(core.JobFilter{State: core.StateScheduled, Group: "g"}), []string{"s"})
}

// Under Strict the job has its place at once, and the group waits for it.
func testStrict(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Delay: brief, Scheduling: core.Strict})
	f.add("g", "a")
	f.wantState("s", core.StateScheduled)
	equal(f, "line", f.line("g"), []string{"s", "a"})
	runAt := f.job("s").RunAt
	equal(f, "due since", clock(f.group("g").DueSince), clock(runAt))
	f.claimNothing()
	f.passes(runAt)
	f.wantServed("s", "a")
}

func testStrictBehind(f *fixture) {
	f.add("g", "a")
	f.put(core.NewJob{Group: "g", ID: "s", Delay: brief, Scheduling: core.Strict})
	f.add("g", "b")
	f.complete(f.claim("a"))
	f.claimNothing()
	runAt := f.job("s").RunAt
	equal(f, "due since", clock(f.group("g").DueSince), clock(runAt))
	f.passes(runAt)
	f.wantServed("s", "b")
}

func testSchedulePolicies(f *fixture) {
	for _, c := range []struct {
		queue, job core.SchedulePolicy
		strict     bool
	}{
		{core.ScheduleDefault, core.ScheduleDefault, false},
		{core.Strict, core.ScheduleDefault, true},
		{core.JoinWhenDue, core.ScheduleDefault, false},
		{core.JoinWhenDue, core.Strict, true},
		{core.Strict, core.JoinWhenDue, false},
	} {
		f := f.otherQueue()
		f.configure(core.QueueConfig{Scheduling: c.queue})
		f.put(core.NewJob{Group: "g", ID: "s", Delay: hour, Scheduling: c.job})
		f.add("g", "a")
		want := []string{"a"}
		if c.strict {
			want = []string{}
		}
		f.Logf("queue %d, job %d", c.queue, c.job)
		f.wantServed(want...)
	}
}

func testUngroupedSchedule(f *fixture) {
	for _, policy := range []core.SchedulePolicy{core.JoinWhenDue, core.Strict} {
		f := f.otherQueue()
		f.put(core.NewJob{ID: "s", Delay: brief, Scheduling: policy})
		f.add("", "a")
		f.wantState("s", core.StateScheduled)
		f.wantServed("a")
		f.passes(f.job("s").RunAt)
		f.wantServed("s")
	}
}

func testPastIsNow(f *fixture) {
	from := f.now()
	f.put(core.NewJob{Group: "g", ID: "a", RunAt: from.Add(-hour)})
	job := f.job("a")
	equal(f, "state", job.State, core.StatePending)
	f.within("run time", job.RunAt, from, f.now())
	f.add("g", "b")
	f.put(core.NewJob{Group: "g", ID: "c", RunAt: from.Add(-2 * hour), Scheduling: core.Strict})
	f.wantServed("a", "b", "c")
}

// A job that stood aside and is moved to pending joins behind all that is there.
func testRunNowJoins(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Delay: hour})
	f.add("g", "a", "b")
	from := f.now()
	f.move(core.StatePending, "s")
	f.add("g", "c")
	job := f.job("s")
	equal(f, "state", job.State, core.StatePending)
	f.within("run time", job.RunAt, from, f.now())
	equal(f, "line", f.line("g"), []string{"a", "b", "s", "c"})
	f.wantServed("a", "b", "s", "c")
}

// A strict one has had its place all along.
func testRunNowStrict(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Delay: hour, Scheduling: core.Strict})
	f.add("g", "a", "b")
	f.move(core.StatePending, "s")
	f.wantServed("s", "a", "b")
}

// A store may join a bounded number at each claim: claims get them all.
func testManyDueAtOnce(f *fixture) {
	n := f.h.scale(700)
	at := f.now().Add(brief)
	batch := make([]core.NewJob, n)
	ids := names("j", n)
	for i := range batch {
		batch[i] = core.NewJob{Group: "g", ID: ids[i], RunAt: at}
	}
	f.publish(batch...)
	f.passes(at)
	f.wantServed(ids...)
}
