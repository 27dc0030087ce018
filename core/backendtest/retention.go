package backendtest

import (
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

var retentionTests = []test{
	{"KeptOrGone", testKeptOrGone},
	{"MovedToTheEnd", testMovedRetention},
	{"ResultOfEarlier", testEarlierResult},
	{"PurgeWhenOver", testPurge},
	{"PurgeInSteps", testPurgeSteps},
	{"PurgeLeavesTheRest", testPurgeLeaves},
	{"PurgeFreesTheID", testPurgeFreesID},
	{"RetentionOfTheSettle", testRetentionAtSettle},
}

// kept tells whether a job is kept under a configuration.
type kept struct {
	name   string
	config core.QueueConfig
	job    time.Duration // its own retention
	result bool
	action core.Action
	state  core.State
}

var keptCases = []kept{
	{"completed by default", core.QueueConfig{}, 0, false, core.Complete, core.StateGone},
	{"completed, queue none", core.QueueConfig{CompletedRetention: core.None}, 0, false, core.Complete, core.StateGone},
	{"completed, queue", core.QueueConfig{CompletedRetention: hour}, 0, false, core.Complete, core.StateCompleted},
	{"completed, queue forever", core.QueueConfig{CompletedRetention: core.Forever}, 0, false, core.Complete, core.StateCompleted},
	{"completed, job", core.QueueConfig{}, hour, false, core.Complete, core.StateCompleted},
	{"completed, job none", core.QueueConfig{CompletedRetention: hour}, core.None, false, core.Complete, core.StateGone},
	{"result by default", core.QueueConfig{}, 0, true, core.Complete, core.StateCompleted},
	{"result, job none", core.QueueConfig{}, core.None, true, core.Complete, core.StateCompleted},
	{"result, none", core.QueueConfig{ResultTTL: core.None}, 0, true, core.Complete, core.StateGone},
	{"result, none but kept", core.QueueConfig{ResultTTL: core.None, CompletedRetention: hour}, 0, true, core.Complete, core.StateCompleted},
	{"dead by default", core.QueueConfig{}, 0, false, core.Dead, core.StateDead},
	{"dead, job none", core.QueueConfig{}, core.None, false, core.Dead, core.StateDead},
	{"dead, none", core.QueueConfig{DeadRetention: core.None}, hour, false, core.Dead, core.StateGone},
	{"dead with result, none", core.QueueConfig{DeadRetention: core.None}, 0, true, core.Dead, core.StateGone},
	{"cancelled by default", core.QueueConfig{}, 0, false, core.Cancel, core.StateCancelled},
	{"cancelled, none", core.QueueConfig{CancelledRetention: core.None}, hour, false, core.Cancel, core.StateGone},
}

func testKeptOrGone(f *fixture) {
	for _, c := range keptCases {
		for _, group := range []string{"g", ""} {
			f := f.otherQueue()
			f.Logf("%s, group %q", c.name, group)
			f.configure(c.config)
			f.put(core.NewJob{Group: group, ID: "a", Retention: c.job})
			f.put(core.NewJob{Group: group, ID: "b"})
			outcome := core.Outcome{Action: c.action}
			if c.result {
				outcome.Patch.Result = []byte("result")
			}
			equal(f, "state in the result", f.settle(f.claim("a"), outcome), c.state)
			f.wantState("a", c.state)
			n, err := f.b.Purge(f.ctx, f.queue, 100)
			f.check(err)
			equal(f, "purged", n, 0)
			f.wantState("a", c.state)
			if c.state != core.StateGone && c.result {
				equal(f, "result", string(f.job("a").Result), "result")
			}
			f.wantState("b", core.StatePending)
		}
	}
}

// A person's move to an end is kept like a settle.
func testMovedRetention(f *fixture) {
	f.configure(core.QueueConfig{DeadRetention: core.None, CancelledRetention: core.None})
	f.add("g", "a", "b", "c", "d")
	f.move(core.StateDead, "a")
	f.wantState("a", core.StateGone)
	f.move(core.StateCancelled, "b")
	f.wantState("b", core.StateGone)
	f.act("g", core.SkipHead)
	f.wantState("c", core.StateGone)
	f.wantServed("d")

	f.configure(core.QueueConfig{})
	f.add("g", "a", "b")
	from := f.now()
	f.move(core.StateDead, "a")
	f.move(core.StateCancelled, "b")
	f.within("finish time", f.job("a").FinishedAt, from, f.now())
	f.within("finish time", f.job("b").FinishedAt, from, f.now())
}

// A result that was saved while the job ran is kept as one given in the end is.
func testEarlierResult(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a"})
	l := f.claim("a")
	f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: []byte("half")}))
	f.retry(l, 0)
	equal(f, "result after a retry", string(f.job("a").Result), "half")
	l = f.claim("a")
	equal(f, "result in the lease", string(l.Job.Result), "half")
	equal(f, "state", f.settle(l, core.Outcome{Action: core.Complete}), core.StateCompleted)
	equal(f, "result", string(f.job("a").Result), "half")
}

// purge purges until n jobs are gone.
func (f *fixture) purge(n int) {
	f.Helper()
	f.eventually(fmt.Sprintf("%d jobs are purged", n), func() bool {
		gone, err := f.b.Purge(f.ctx, f.queue, core.MaxPage)
		f.check(err)
		n -= gone
		return n <= 0
	})
	equal(f, "jobs left to purge", n, 0)
}

func testPurge(f *fixture) {
	f.configure(core.QueueConfig{
		CompletedRetention: brief, DeadRetention: brief, CancelledRetention: brief, ResultTTL: brief,
	})
	f.add("g", "completed", "dead", "cancelled")
	f.add("", "single")
	f.put(core.NewJob{ID: "result", Retention: core.None})
	f.add("", "waiting")
	f.complete(f.claim("completed"))
	f.complete(f.claim("single"))
	f.settle(f.claim("result"), core.Outcome{Action: core.Complete, Patch: core.Patch{Result: []byte("r")}})
	f.move(core.StateDead, "dead")
	f.move(core.StateCancelled, "cancelled")
	f.purge(5)
	for _, id := range []string{"completed", "dead", "cancelled", "single", "result"} {
		f.wantState(id, core.StateGone)
	}
	for _, state := range []core.State{core.StateCompleted, core.StateDead, core.StateCancelled} {
		equal(f, "listed", f.ids(core.JobFilter{State: state}), []string{})
	}
	equal(f, "jobs", f.info().Jobs[core.StatePending], 1)
	f.wantServed("waiting")
}

// One purge removes no more than its limit.
func testPurgeSteps(f *fixture) {
	f.configure(core.QueueConfig{DeadRetention: core.MinLease})
	f.add("g", names("j", 7)...)
	f.move(core.StateDead, names("j", 7)...)
	f.passes(f.job("j006").FinishedAt.Add(core.MinLease))
	left := 7
	for _, want := range []int{3, 3, 1, 0} {
		n, err := f.b.Purge(f.ctx, f.queue, 3)
		f.check(err)
		if n > 3 {
			f.Fatalf("purged %d jobs with a limit of 3", n)
		}
		equal(f, "purged", n, want)
		left -= n
		equal(f, "jobs left", f.info().Jobs[core.StateDead], int64(left))
	}
}

// What is not over, and what is not finished, stays.
func testPurgeLeaves(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: core.MinLease})
	f.add("g", "short", "running", "pending")
	f.put(core.NewJob{Group: "h", ID: "long", Retention: hour})
	f.put(core.NewJob{ID: "scheduled", Delay: hour})
	f.add("", "retrying")
	f.complete(f.claim("short"))
	f.complete(f.claim("long"))
	f.retry(f.claim("retrying"), hour)
	f.claim("running")
	f.purge(1)
	f.wantState("short", core.StateGone)
	for id, state := range map[string]core.State{
		"long": core.StateCompleted, "running": core.StateRunning, "pending": core.StatePending,
		"scheduled": core.StateScheduled, "retrying": core.StateRetrying,
	} {
		f.wantState(id, state)
	}
}

func testPurgeFreesID(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: core.MinLease})
	f.put(key("a", core.Dedup{While: core.Unfinished | core.Finished}))
	f.complete(f.claim("a"))
	f.purge(1)
	f.put(key("a", core.Dedup{}))
	f.wantServed("a")
}

// How long a job is kept is decided as it ends, by the settings of that time.
func testRetentionAtSettle(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.configure(core.QueueConfig{CompletedRetention: hour})
	equal(f, "state", f.settle(l, core.Outcome{Action: core.Complete}), core.StateCompleted)
	f.configure(core.QueueConfig{})
	equal(f, "state", f.settle(f.claim("b"), core.Outcome{Action: core.Complete}), core.StateGone)
	f.wantState("a", core.StateCompleted)
}
