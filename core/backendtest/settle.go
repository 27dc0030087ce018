package backendtest

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rota-queue/rota/core"
)

var settleTests = []test{
	{"EveryAction", testEveryAction},
	{"LastAttempt", testLastAttempt},
	{"DeadWithAttemptsLeft", testDeadEarly},
	{"AttemptsOfReleaseAndSnooze", testAttemptsGivenBack},
	{"CancelRequested", testSettleCancelRequested},
	{"FailuresRecorded", testFailuresRecorded},
	{"FailuresBounded", testFailuresBounded},
	{"ErrorTextCut", testErrorCut},
	{"Counters", testSettleCounters},
	{"BatchOfEverything", testSettleBatch},
	{"ExtendTellsOfCancel", testExtendTells},
	{"ExtendKeepsOthersAway", testExtendKeeps},
	{"ExtendNamedTwice", testExtendTwice},
}

// settled tells what a settle makes of a running job in its first attempt.
type settled struct {
	outcome  core.Outcome
	state    core.State // in the result
	attempt  int
	failures int
	counted  core.DayStats
}

var settledJobs = map[string]settled{
	"complete": {core.Outcome{Action: core.Complete}, core.StateCompleted, 1, 0, core.DayStats{Completed: 1}},
	"complete with an error": {core.Outcome{Action: core.Complete, Error: "no matter"},
		core.StateCompleted, 1, 0, core.DayStats{Completed: 1}},
	"retry":         {core.Outcome{Action: core.Retry, Error: "e"}, core.StatePending, 1, 1, core.DayStats{Failed: 1}},
	"silent retry":  {core.Outcome{Action: core.Retry}, core.StatePending, 1, 1, core.DayStats{Failed: 1}},
	"delayed retry": {core.Outcome{Action: core.Retry, Error: "e", Delay: hour}, core.StateRetrying, 1, 1, core.DayStats{Failed: 1}},
	"release":       {core.Outcome{Action: core.Release}, core.StatePending, 0, 0, core.DayStats{}},
	"snooze":        {core.Outcome{Action: core.Snooze}, core.StatePending, 0, 0, core.DayStats{}},
	"delayed snooze": {core.Outcome{Action: core.Snooze, Delay: hour},
		core.StateScheduled, 0, 0, core.DayStats{}},
	"snooze with an error": {core.Outcome{Action: core.Snooze, Delay: hour, Error: "e"},
		core.StateScheduled, 0, 1, core.DayStats{}},
	"dead":                 {core.Outcome{Action: core.Dead, Error: "e"}, core.StateDead, 1, 1, core.DayStats{Failed: 1, Dead: 1}},
	"silent dead":          {core.Outcome{Action: core.Dead}, core.StateDead, 1, 1, core.DayStats{Failed: 1, Dead: 1}},
	"cancel":               {core.Outcome{Action: core.Cancel}, core.StateCancelled, 1, 0, core.DayStats{Cancelled: 1}},
	"cancel with an error": {core.Outcome{Action: core.Cancel, Error: "e"}, core.StateCancelled, 1, 1, core.DayStats{Cancelled: 1}},
}

func testEveryAction(f *fixture) {
	for name, want := range settledJobs {
		for _, group := range []string{"g", ""} {
			f := f.otherQueue()
			f.Logf("%s, group %q", name, group)
			f.configure(core.QueueConfig{CompletedRetention: hour})
			f.put(core.NewJob{Group: group, ID: "a"})
			l := f.claim("a")
			from := f.now()
			equal(f, "state in the result", f.settle(l, want.outcome), want.state)
			job := f.job("a")
			equal(f, "state", job.State, want.state)
			equal(f, "attempt", job.Attempt, want.attempt)
			equal(f, "failures", len(job.Failures), want.failures)
			equal(f, "counters", f.counted(), want.counted)
			equal(f, "finish time set", !job.FinishedAt.IsZero(), want.state.Finished())
			if job.Lease != nil {
				f.Errorf("the settled job has lease %+v", job.Lease)
			}
			if !want.state.Finished() {
				f.within("run time", job.RunAt, from.Add(want.outcome.Delay), f.now().Add(want.outcome.Delay))
			}
			equal(f, "jobs", f.info().Jobs[want.state], 1)
			if group != "" && !want.state.Finished() {
				if info := f.group("g"); info.Lease != nil || info.Head != "a" {
					f.Errorf("the group is %+v, want a free in front", info)
				}
			}
		}
	}
}

// A retry with no attempts left is dead; what counts are the claims.
func testLastAttempt(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.put(core.NewJob{Group: group, ID: "a", MaxAttempts: 2})
		equal(f, "after the first", f.retry(f.claim("a"), 0), core.StatePending)
		f.release(f.claim("a")) // gives the attempt back
		f.snooze(f.claim("a"), 0)
		equal(f, "after the last", f.retry(f.claim("a"), hour), core.StateDead)
		job := f.job("a")
		equal(f, "state", job.State, core.StateDead)
		equal(f, "attempt", job.Attempt, 2)
		equal(f, "failures", len(job.Failures), 2)
		equal(f, "counters", f.counted(), core.DayStats{Failed: 2, Dead: 1})
		f.claimNothing()
	}
	f.put(core.NewJob{Group: "g", ID: "b", MaxAttempts: core.Unlimited})
	for range 60 {
		equal(f, "state", f.retry(f.claim("b"), 0), core.StatePending)
	}
}

func testDeadEarly(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: core.Unlimited})
	f.add("g", "b")
	equal(f, "state", f.kill(f.claim("a")), core.StateDead)
	f.wantServed("b")
}

func testAttemptsGivenBack(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.put(core.NewJob{Group: group, ID: "a", MaxAttempts: 2})
		for range 4 {
			f.release(f.claim("a"))
			equal(f, "attempt after a release", f.job("a").Attempt, 0)
			f.snooze(f.claim("a"), 0)
			equal(f, "attempt after a snooze", f.job("a").Attempt, 0)
		}
		f.retry(f.claim("a"), 0)
		f.snooze(f.claim("a"), 0)
		equal(f, "attempt", f.job("a").Attempt, 1)
		equal(f, "attempt in the lease", f.claim("a").Job.Attempt, 2)
	}
}

// What a person cancelled ends as cancelled, unless its handler got to an end of
// its own.
func testSettleCancelRequested(f *fixture) {
	for action := core.Complete; action <= core.Cancel; action++ {
		for _, group := range []string{"g", ""} {
			f := f.otherQueue()
			f.configure(core.QueueConfig{CompletedRetention: hour})
			f.add(group, "a", "b")
			l := f.claim("a")
			f.move(core.StateCancelled, "a")
			want := core.StateCancelled
			switch action {
			case core.Complete:
				want = core.StateCompleted
			case core.Dead:
				want = core.StateDead
			}
			f.Log(action)
			equal(f, "state in the result", f.settle(l, core.Outcome{Action: action, Delay: hour}), want)
			f.wantState("a", want)
			f.wantServed("b")
		}
	}
}

func testFailuresRecorded(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: core.Unlimited})
	steps := []struct {
		outcome core.Outcome
		worker  string
	}{
		{core.Outcome{Action: core.Retry, Error: "first", Trace: "stack 1"}, "w1"},
		{core.Outcome{Action: core.Snooze, Error: "busy"}, "w2"},
		{core.Outcome{Action: core.Retry}, "w3"},
		{core.Outcome{Action: core.Dead, Error: "last\nline two", Trace: "stack 4"}, "w4"},
	}
	for i, s := range steps {
		res, err := f.b.Claim(f.ctx, core.ClaimRequest{Queue: f.queue, Max: 1, Lease: hour, Owner: s.worker})
		f.check(err)
		equal(f, "leases", len(res.Leases), 1)
		l := res.Leases[0]
		equal(f, "owner", l.Job.Lease.Owner, s.worker)
		from := f.now()
		f.settle(l, s.outcome)
		failures := f.job("a").Failures
		equal(f, "failures", len(failures), i+1)
		got := failures[i]
		f.within("time", got.At, from, f.now())
		equal(f, "failure", got, core.Failure{
			Attempt: l.Job.Attempt, At: got.At, Error: s.outcome.Error, Trace: s.outcome.Trace, Worker: s.worker,
		})
	}
}

// The latest failures are kept, oldest first.
func testFailuresBounded(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: core.Unlimited})
	n := core.MaxFailures + 10
	for i := range n {
		f.settle(f.claim("a"), core.Outcome{Action: core.Retry, Error: fmt.Sprint("failure ", i+1)})
	}
	job := f.job("a")
	equal(f, "attempt", job.Attempt, n)
	equal(f, "failures", len(job.Failures), core.MaxFailures)
	for i, failure := range job.Failures {
		equal(f, "attempt of the failure", failure.Attempt, i+11)
		equal(f, "error", failure.Error, fmt.Sprint("failure ", i+11))
	}
	equal(f, "failed", f.counted().Failed, int64(n))
}

// Long texts are cut at MaxErrorText bytes, not within a character.
func testErrorCut(f *fixture) {
	f.add("g", "a")
	for i, text := range []string{
		strings.Repeat("x", core.MaxErrorText),
		strings.Repeat("x", core.MaxErrorText+1),
		"x" + strings.Repeat("é", core.MaxErrorText),
		strings.Repeat("日本", core.MaxErrorText),
	} {
		f.settle(f.claim("a"), core.Outcome{Action: core.Retry, Error: text, Trace: text + "trace"})
		got := f.job("a").Failures[i]
		equal(f, "error", got.Error == core.CutError(text), true)
		equal(f, "trace", got.Trace == core.CutError(text+"trace"), true)
		equal(f, "valid UTF-8", utf8.ValidString(got.Error), true)
	}
}

func testSettleCounters(f *fixture) {
	f.configure(core.QueueConfig{DeadRetention: core.None, CancelledRetention: core.None})
	outcomes := []core.Outcome{
		{Action: core.Complete}, {Action: core.Complete}, {Action: core.Complete},
		{Action: core.Retry, Delay: hour}, {Action: core.Retry, Delay: hour},
		{Action: core.Dead}, {Action: core.Cancel}, {Action: core.Release}, {Action: core.Snooze, Delay: hour},
	}
	f.publish(make([]core.NewJob, len(outcomes))...)
	leases := f.claimUpTo(len(outcomes))
	equal(f, "leases", len(leases), len(outcomes))
	for i := range outcomes {
		f.settle(leases[i], outcomes[i])
	}
	equal(f, "counters", f.counted(), core.DayStats{Completed: 3, Failed: 3, Dead: 1, Cancelled: 1})
}

// One batch with every action, each by itself.
func testSettleBatch(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	var outcomes []core.Outcome
	for action := core.Complete; action <= core.Cancel; action++ {
		for _, group := range []string{"g" + action.String(), ""} {
			f.put(core.NewJob{Group: group, ID: action.String() + group})
			l := f.claim(action.String() + group)
			outcomes = append(outcomes, core.Outcome{Lease: l.LeaseRef, Action: action, Delay: hour, Error: "e"})
		}
	}
	want := map[core.Action]core.State{
		core.Complete: core.StateCompleted, core.Retry: core.StateRetrying, core.Release: core.StatePending,
		core.Snooze: core.StateScheduled, core.Dead: core.StateDead, core.Cancel: core.StateCancelled,
	}
	for i, res := range f.trySettleAll(outcomes...) {
		f.check(res.Err)
		equal(f, "state in the result", res.State, want[outcomes[i].Action])
		f.wantState(outcomes[i].Lease.JobID, want[outcomes[i].Action])
	}
}

func testExtendTells(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.add(group, "a")
		l := f.claim("a")
		equal(f, "cancel requested", f.extend(l, hour).CancelRequested, false)
		f.move(core.StateCancelled, "a")
		equal(f, "cancel requested", f.job("a").CancelRequested, true)
		ext := f.extend(l, hour)
		f.check(ext.Err)
		equal(f, "cancel requested", ext.CancelRequested, true)
		f.settle(l, core.Outcome{Action: core.Cancel})
		f.move(core.StatePending, "a")
		equal(f, "cancel requested after a redrive", f.job("a").CancelRequested, false)
		equal(f, "cancel requested in the next lease", f.extend(f.claim("a"), hour).CancelRequested, false)
	}
}

// An extended lease lasts longer than it was given for.
func testExtendKeeps(f *fixture) {
	f.add("g", "a")
	f.add("", "u")
	leases := f.tryClaim(core.ClaimRequest{Max: 2, Lease: brief}).Leases
	equal(f, "claimed", jobIDs(leases), []string{"a", "u"})
	for _, l := range leases {
		f.check(f.extend(l, hour).Err)
	}
	f.passes(leases[1].Until)
	f.otherHandle().claimNothing()
	f.complete(leases...)
}

// A lease that a batch names twice is extended, and both answers say so.
func testExtendTwice(f *fixture) {
	f.add("g", "a")
	l := f.claim("a")
	res, err := f.b.Extend(f.ctx, f.queue, []core.LeaseRef{l.LeaseRef, l.LeaseRef}, 2*hour)
	f.check(err)
	for _, ext := range res {
		f.check(ext.Err)
		equal(f, "end", clock(ext.Until), clock(f.job("a").Lease.Until))
	}
}
