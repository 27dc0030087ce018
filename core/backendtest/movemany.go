package backendtest

import (
	"fmt"

	"github.com/rota-queue/rota/core"
)

var moveManyTests = []test{
	{"Redrive", testRedriveMany},
	{"LimitAndMore", testMoveLimit},
	{"OldestFirst", testMoveOldestFirst},
	{"OneGroup", testMoveOneGroup},
	{"EveryState", testMoveFromEveryState},
	{"RunNowAll", testRunNowAll},
	{"CancelAllRunning", testCancelAllRunning},
	{"ManyPages", testMoveManyPages},
	{"PassesOverWhatStays", testMovePassesOver},
	{"RunningAreAskedOnce", testMoveRunningOnce},
}

func (f *fixture) moveMany(req core.MoveRequest) core.MoveResult {
	f.Helper()
	req.Queue = f.queue
	res, err := f.b.Move(f.ctx, req)
	f.check(err)
	equal(f, "errors", len(res.Errs), 0)
	return res
}

// wantMoved moves by state and wants so many to be moved.
func (f *fixture) wantMoved(req core.MoveRequest, moved int, more bool) {
	f.Helper()
	res := f.moveMany(req)
	equal(f, "moved", res.Moved, moved)
	equal(f, "more", res.More, more)
}

func testRedriveMany(f *fixture) {
	f.add("g", names("j", 6)...)
	f.add("h", "x")
	f.move(core.StateDead, names("j", 5)...)
	f.wantMoved(core.MoveRequest{To: core.StatePending, From: core.StateDead}, 5, false)
	f.wantMoved(core.MoveRequest{To: core.StatePending, From: core.StateDead}, 0, false)
	equal(f, "line", f.line("g"), names("j", 6))
}

func testMoveLimit(f *fixture) {
	f.add("g", names("j", 7)...)
	req := core.MoveRequest{To: core.StateGone, From: core.StatePending, Limit: 3}
	f.wantMoved(req, 3, true)
	f.wantMoved(req, 3, true)
	f.wantMoved(req, 1, false)
	f.wantMoved(req, 0, false)
	f.add("g", names("j", 3)...)
	res := f.moveMany(req)
	equal(f, "moved", res.Moved, 3)
	f.claimNothing()
}

func testMoveOldestFirst(f *fixture) {
	f.add("g", names("j", 6)...)
	for _, id := range []string{"j003", "j000", "j005", "j001"} {
		f.move(core.StateDead, id) // oldest as a dead letter, not as a job
	}
	f.wantMoved(core.MoveRequest{To: core.StateCancelled, From: core.StateDead, Limit: 2}, 2, true)
	// Both were cancelled at one time, so they are listed by Seq.
	equal(f, "cancelled", f.ids(core.JobFilter{State: core.StateCancelled}), []string{"j000", "j003"})
	equal(f, "still dead", f.ids(core.JobFilter{State: core.StateDead}), []string{"j005", "j001"})
	f.wantMoved(core.MoveRequest{To: core.StateGone, From: core.StatePending, Limit: 1}, 1, true)
	equal(f, "line", f.line("g"), []string{"j004"})
}

func testMoveOneGroup(f *fixture) {
	for _, g := range []string{"g", "h", ""} {
		f.add(g, names("in"+g, 4)...)
	}
	f.wantMoved(core.MoveRequest{To: core.StateDead, From: core.StatePending, Group: "g", Limit: 3}, 3, true)
	f.wantMoved(core.MoveRequest{To: core.StateDead, From: core.StatePending, Group: "g", Limit: 3}, 1, false)
	f.wantMoved(core.MoveRequest{To: core.StateDead, From: core.StatePending, Group: "none"}, 0, false)
	equal(f, "dead", f.ids(core.JobFilter{State: core.StateDead}), names("ing", 4))
	equal(f, "line of the other", f.line("h"), names("inh", 4))
	equal(f, "pending", f.info().Jobs[core.StatePending], 8)
	f.wantMoved(core.MoveRequest{To: core.StatePending, From: core.StateDead, Group: "h"}, 0, false)
	f.wantMoved(core.MoveRequest{To: core.StatePending, From: core.StateDead, Group: "g"}, 4, false)
	equal(f, "line", f.line("g"), names("ing", 4))
}

// Each state can be emptied.
func testMoveFromEveryState(f *fixture) {
	for _, from := range core.JobStates() {
		f := f.otherQueue()
		f.inState(from, core.Dedup{})
		to := core.StateGone
		if from == core.StateRunning {
			to = core.StateCancelled
		}
		f.Logf("from %s", from)
		f.wantMoved(core.MoveRequest{To: to, From: from}, 1, false)
		if from != core.StateRunning {
			f.wantState("a", core.StateGone)
		}
	}
}

// Scheduled jobs of both policies and retrying ones, grouped or not, run now.
func testRunNowAll(f *fixture) {
	f.publish(
		core.NewJob{Group: "g", ID: "aside", Delay: hour},
		core.NewJob{Group: "h", ID: "strict", Delay: 2 * hour, Scheduling: core.Strict},
		core.NewJob{ID: "single", Delay: 3 * hour},
	)
	f.add("k", "retrying", "behind")
	f.retry(f.claim("retrying"), hour)
	f.wantMoved(core.MoveRequest{To: core.StatePending, From: core.StateScheduled}, 3, false)
	f.wantMoved(core.MoveRequest{To: core.StatePending, From: core.StateRetrying}, 1, false)
	equal(f, "served", len(f.serve()), 5)
}

func testCancelAllRunning(f *fixture) {
	for _, g := range []string{"g", "h", "k"} {
		f.add(g, "in"+g)
	}
	f.add("", "single")
	leases := f.claimUpTo(4)
	equal(f, "leases", len(leases), 4)
	f.wantMoved(core.MoveRequest{To: core.StateCancelled, From: core.StateRunning}, 4, false)
	for _, l := range leases {
		equal(f, "cancel requested", f.extend(l, hour).CancelRequested, true)
		equal(f, "state", f.settle(l, core.Outcome{Action: core.Release}), core.StateCancelled)
	}
	f.claimNothing()
}

// As many calls as it takes, each of them bounded.
func testMoveManyPages(f *fixture) {
	n := f.h.scale(2500)
	batch := make([]core.NewJob, n)
	for i := range batch {
		batch[i] = core.NewJob{Group: names("g", 3)[i%3]}
	}
	f.publish(batch...)
	for _, step := range []struct{ from, to core.State }{
		{core.StatePending, core.StateDead}, {core.StateDead, core.StatePending}, {core.StatePending, core.StateGone},
	} {
		moved := 0
		for more := true; more; {
			res := f.moveMany(core.MoveRequest{From: step.from, To: step.to, Limit: core.MaxPage})
			if res.Moved > core.MaxPage {
				f.Fatalf("moved %d in one call", res.Moved)
			}
			moved += res.Moved
			more = res.More
		}
		equal(f, "moved in all", moved, n)
		equal(f, "left in "+step.from.String(), f.info().Jobs[step.from], 0)
	}
}

// Jobs that can not be moved do not hide those behind them.
func testMovePassesOver(f *fixture) {
	for i := range 3 {
		id := fmt.Sprint("old", i)
		f.put(key(id, core.Dedup{Key: fmt.Sprint("k", i)}))
		f.kill(f.claim(id))
	}
	for i := range 3 { // their keys are another's now
		f.put(key(fmt.Sprint("new", i), core.Dedup{Key: fmt.Sprint("k", i), OnConflict: core.AllowAfterFailure}))
	}
	f.add("h", names("j", 4)...)
	f.move(core.StateDead, names("j", 4)...)
	req := core.MoveRequest{To: core.StatePending, From: core.StateDead, Limit: 3}
	f.wantMoved(req, 3, true)
	f.wantMoved(req, 1, false)
	f.wantMoved(req, 0, false)
	equal(f, "still dead", f.ids(core.JobFilter{State: core.StateDead}), []string{"old0", "old1", "old2"})
}

// A running job is asked to end once, so that a loop comes to its end.
func testMoveRunningOnce(f *fixture) {
	f.add("", names("j", 5)...)
	leases := f.claimUpTo(5)
	req := core.MoveRequest{To: core.StateCancelled, From: core.StateRunning, Limit: 3}
	f.wantMoved(req, 3, true)
	f.wantMoved(req, 2, false)
	f.wantMoved(req, 0, false)
	for _, l := range leases {
		equal(f, "cancel requested", f.extend(l, hour).CancelRequested, true)
	}
}
