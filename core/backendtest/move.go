package backendtest

import (
	"errors"
	"fmt"

	"github.com/rota-queue/rota/core"
)

var moveTests = []test{
	{"EveryPair", testMoveEveryPair},
	{"StandingAsideAndStrict", testMoveScheduledKinds},
	{"ErrorsPerID", testMoveErrors},
	{"SameIDTwice", testMoveTwice},
	{"NoSuchQueue", testMoveNoQueue},
	{"AttemptsSpent", testMoveAttempts},
	{"FreshRunTime", testMoveRunTime},
	{"CancelRunning", testMoveCancelRunning},
	{"DeadWithoutHold", testMoveDeadNoHold},
	{"RedriveKeepsHistory", testRedriveHistory},
	{"Ungrouped", testMoveUngrouped},
	{"GoneFreesTheID", testMoveGone},
	{"Counters", testMoveCounters},
}

// wantStateError fails the test unless err is a *StateError about this job.
func (f *fixture) wantStateError(err error, id string, state core.State) {
	f.Helper()
	f.wantErr(err, core.ErrWrongState)
	var got *core.StateError
	if !errors.As(err, &got) {
		f.Fatalf("got error %v, want a *StateError", err)
	}
	equal(f, "the state error", *got, core.StateError{Queue: f.queue, ID: id, State: state})
}

// movable says whether a person may move a job from a state to a target.
func movable(from, to core.State) bool {
	switch {
	case from == to:
		return false
	case from == core.StateRunning:
		return to == core.StateCancelled
	}
	return true
}

// Each state and each target: it moves, or it is refused and nothing happens.
func testMoveEveryPair(f *fixture) {
	for _, from := range core.JobStates() {
		for _, to := range []core.State{core.StatePending, core.StateCancelled, core.StateDead, core.StateGone} {
			f := f.otherQueue()
			f.Logf("from %s to %s", from, to)
			f.inState(from, core.Dedup{})
			if !movable(from, to) {
				f.unchanged("a refused move", func() {
					res := f.tryMove(to, "a")
					equal(f, "moved", res.Moved, 0)
					f.wantStateError(res.Errs[0], "a", from)
				})
				continue
			}
			since := f.now()
			f.move(to, "a")
			if from == core.StateRunning {
				f.wantState("a", core.StateRunning)
				equal(f, "cancel requested", f.job("a").CancelRequested, true)
				continue
			}
			f.wantState("a", to)
			f.claimable(to == core.StatePending, "a")
			if to == core.StateGone {
				equal(f, "jobs", len(f.info().Jobs), 0)
				continue
			}
			job := f.job("a")
			equal(f, "jobs", f.info().Jobs[job.State], 1)
			equal(f, "listed", f.ids(core.JobFilter{State: job.State}), []string{"a"})
			if to != core.StatePending && !from.Finished() {
				f.within("finish time", job.FinishedAt, since, f.now())
			}
		}
	}
}

// claimable fails the test unless the job, and nothing else, can be claimed; or
// nothing at all when not.
func (f *fixture) claimable(yes bool, id string) {
	f.Helper()
	if yes {
		f.claimBatch(id)
	} else {
		f.claimNothing()
	}
}

func testMoveScheduledKinds(f *fixture) {
	for _, policy := range []core.SchedulePolicy{core.JoinWhenDue, core.Strict} {
		for _, group := range []string{"g", ""} {
			for _, to := range []core.State{core.StatePending, core.StateCancelled, core.StateDead, core.StateGone} {
				f := f.otherQueue()
				f.put(core.NewJob{Group: group, ID: "s", Delay: hour, Scheduling: policy})
				f.Logf("policy %d, group %q, to %s", policy, group, to)
				f.move(to, "s")
				f.wantState("s", to)
				f.claimable(to == core.StatePending, "s")
				if to != core.StatePending {
					f.wantNoGroup("g")
				}
			}
		}
	}
}

func testMoveErrors(f *fixture) {
	f.add("g", "dead", "running", "pending")
	f.kill(f.claim("dead"))
	f.claim("running")
	ids := []string{"dead", "nobody", "running", "pending", "dead too"}
	f.add("h", "dead too")
	f.move(core.StateDead, "dead too")
	res := f.tryMove(core.StatePending, ids...)
	equal(f, "moved", res.Moved, 2)
	equal(f, "more", res.More, false)
	f.check(res.Errs[0])
	f.wantErr(res.Errs[1], core.ErrNotFound)
	f.wantStateError(res.Errs[2], "running", core.StateRunning)
	f.wantStateError(res.Errs[3], "pending", core.StatePending)
	f.check(res.Errs[4])
	f.wantState("dead", core.StatePending)
	f.wantState("dead too", core.StatePending)
}

// The ids of one move are moved one after the other.
func testMoveTwice(f *fixture) {
	f.add("g", "a", "b")
	res := f.tryMove(core.StateCancelled, "a", "a")
	equal(f, "moved", res.Moved, 1)
	f.check(res.Errs[0])
	f.wantStateError(res.Errs[1], "a", core.StateCancelled)
	res = f.tryMove(core.StateGone, "a", "b", "a")
	equal(f, "moved", res.Moved, 2)
	f.wantErr(res.Errs[2], core.ErrNotFound)
}

func testMoveNoQueue(f *fixture) {
	res := f.tryMove(core.StateGone, "a", "b")
	equal(f, "moved", res.Moved, 0)
	for _, err := range res.Errs {
		f.wantErr(err, core.ErrNotFound)
	}
	res, err := f.b.Move(f.ctx, core.MoveRequest{Queue: f.queue, To: core.StateGone, From: core.StateDead})
	f.check(err)
	equal(f, "moved and more", fmt.Sprint(res.Moved, res.More), "0 false")
}

// A job whose attempts are spent gets one more; others keep what they have.
func testMoveAttempts(f *fixture) {
	for _, c := range []struct{ max, claims, want int }{
		{1, 1, 2}, {3, 3, 4}, {3, 1, 3}, {2, 0, 2}, {core.Unlimited, 2, core.Unlimited},
	} {
		f := f.otherQueue()
		f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: c.max})
		for range c.claims - 1 {
			f.retry(f.claim("a"), 0)
		}
		if c.claims > 0 {
			f.kill(f.claim("a"))
		} else {
			f.move(core.StateDead, "a")
		}
		f.move(core.StatePending, "a")
		job := f.job("a")
		f.Logf("%d of %d attempts", c.claims, c.max)
		equal(f, "attempt", job.Attempt, c.claims)
		equal(f, "max attempts", job.MaxAttempts, c.want)
		equal(f, "attempt in the lease", f.claim("a").Job.Attempt, c.claims+1)
	}
	// What the queue gave counts like what the job brought.
	for max, want := range map[int]int{1: 2, 5: 5, core.Unlimited: core.Unlimited} {
		f := f.otherQueue()
		f.configure(core.QueueConfig{MaxAttempts: max})
		f.add("g", "a")
		f.kill(f.claim("a"))
		f.put(core.NewJob{Group: "h", ID: "b", Delay: hour})
		f.configure(core.QueueConfig{MaxAttempts: 1})
		f.move(core.StatePending, "a", "b")
		equal(f, "max attempts", f.job("a").MaxAttempts, want)
		equal(f, "max attempts of one that did not run", f.job("b").MaxAttempts, max)
	}
	// The one more is one.
	f.put(core.NewJob{ID: "a", MaxAttempts: 1})
	f.retry(f.claim("a"), 0)
	f.move(core.StatePending, "a")
	equal(f, "state", f.retry(f.claim("a"), 0), core.StateDead)
}

func testMoveRunTime(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.add(group, "a")
		f.retry(f.claim("a"), hour)
		from := f.now()
		f.move(core.StatePending, "a")
		job := f.job("a")
		f.within("run time", job.RunAt, from, f.now())
		f.kill(f.claim("a"))
		from = f.now()
		f.move(core.StatePending, "a")
		f.within("run time", f.job("a").RunAt, from, f.now())
		f.claim("a")
	}
}

// A running job is asked to end. It keeps its lease until it does.
func testMoveCancelRunning(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.add(group, "a", "b")
		l := f.claim("a")
		if group == "" {
			f.complete(f.claim("b"))
		}
		f.move(core.StateCancelled, "a")
		f.claimNothing()
		job := f.job("a")
		equal(f, "state", job.State, core.StateRunning)
		equal(f, "cancel requested", job.CancelRequested, true)
		equal(f, "lease", clock(job.Lease.Until), clock(l.Until))
		f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: []byte("r")}))
		equal(f, "state", f.settle(l, core.Outcome{Action: core.Retry, Error: "stopped"}), core.StateCancelled)
		f.wantState("a", core.StateCancelled)
		equal(f, "counted", f.counted().Cancelled, 1)
	}
}

// A person's dead letter is no failure and holds nothing.
func testMoveDeadNoHold(f *fixture) {
	f.configure(core.QueueConfig{OnExhausted: core.Hold})
	f.put(core.NewJob{Group: "g", ID: "a", OnExhausted: core.Hold})
	f.add("g", "b")
	f.move(core.StateDead, "a")
	job := f.job("a")
	equal(f, "failures", len(job.Failures), 0)
	equal(f, "attempt", job.Attempt, 0)
	equal(f, "failed", f.counted().Failed, 0)
	equal(f, "held", f.group("g").Held, false)
	f.wantServed("b")
}

func testRedriveHistory(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: 2, Payload: []byte("p"), Priority: 2})
	f.retry(f.claim("a"), 0)
	f.settle(f.claim("a"), core.Outcome{Action: core.Retry, Error: "last", Patch: core.Patch{Result: []byte("r")}})
	before := f.job("a")
	f.move(core.StatePending, "a")
	job := f.job("a")
	equal(f, "failures", len(job.Failures), 2)
	equal(f, "finish time", job.FinishedAt.IsZero(), true)
	equal(f, "claim time", clock(job.ClaimedAt), clock(before.ClaimedAt))
	equal(f, "Seq", job.Seq, before.Seq)
	equal(f, "result", string(job.Result), "r")
	equal(f, "payload", string(f.claim("a").Job.Payload), "p")
}

func testMoveUngrouped(f *fixture) {
	f.add("", "a", "b", "c")
	leases := f.claimBatch("a", "b", "c")
	f.kill(leases[0])
	f.retry(leases[1], hour)
	f.move(core.StatePending, "b")
	f.move(core.StatePending, "a")
	f.wantServed("b", "a")
	f.complete(leases[2])
}

func testMoveGone(f *fixture) {
	f.add("g", "a", "b")
	f.move(core.StateGone, "a")
	f.put(core.NewJob{Group: "g", ID: "a", Payload: []byte("again")})
	equal(f, "line", f.line("g"), []string{"b", "a"})
	f.wantServed("b", "a")
}

// What a person ends is counted as what it ended as; nothing else is counted.
func testMoveCounters(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	f.add("g", "a", "b", "c", "d")
	f.move(core.StateDead, "a")
	f.move(core.StateCancelled, "b")
	f.move(core.StateGone, "c")
	f.act("g", core.SkipHead)
	equal(f, "counters", f.counted(), core.DayStats{Dead: 1, Cancelled: 2})
	f.move(core.StatePending, "a")
	equal(f, "counters", f.counted(), core.DayStats{Dead: 1, Cancelled: 2})
}
