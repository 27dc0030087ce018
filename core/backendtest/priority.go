package backendtest

import (
	"fmt"
	"slices"

	"github.com/rota-queue/rota/core"
)

var priorityTests = []test{
	{"HigherFirst", testHigherFirst},
	{"HigherFirstInBatch", testHigherFirstInBatch},
	{"FixedByFirst", testTierFixed},
	{"ForgottenOnDrain", testTierForgotten},
	{"ForgottenOnDrainWhilePaused", testTierForgottenPaused},
	{"KeptWhileJobsAreLeft", testTierKept},
	{"KeptWhenSettledTogether", testTierSettledTogether},
	{"TakenAsTheJobJoins", testTierAtJoin},
	{"StrictScheduleCounts", testTierStrict},
	{"Redriven", testTierRedriven},
	{"Ungrouped", testTierUngrouped},
	{"Floor", testFloor},
	{"FloorBehindBacklog", testFloorBacklog},
	{"FloorFindsNothing", testFloorNothing},
	{"TurnsInEachTier", testTurnsInTier},
	{"ByTurn", testByTurn},
	{"ByTurnAboveFloor", testByTurnFloor},
	{"ByTurnStarvesNobody", testByTurnStarvesNobody},
	{"ByPriority", testByPriority},
}

func testHigherFirst(f *fixture) {
	for p := range core.MaxPriority + 1 {
		f.put(core.NewJob{Group: fmt.Sprint("g", p), ID: fmt.Sprint("g", p), Priority: p})
		f.put(core.NewJob{ID: fmt.Sprint("u", p), Priority: p})
	}
	f.wantServed("g4", "u4", "g3", "u3", "g2", "u2", "g1", "u1", "g0", "u0")
}

func testHigherFirstInBatch(f *fixture) {
	for _, p := range []int{2, 0, 4, 1, 3} {
		f.put(core.NewJob{Group: fmt.Sprint("g", p), ID: fmt.Sprint("a", p), Priority: p})
		f.put(core.NewJob{Group: fmt.Sprint("h", p), ID: fmt.Sprint("b", p), Priority: p})
	}
	leases := f.claimBatch("a4", "b4", "a3", "b3", "a2", "b2", "a1", "b1", "a0", "b0")
	for _, l := range leases {
		equal(f, "priority", fmt.Sprint(l.Job.Priority), l.JobID[1:])
	}
}

// The first job of a group fixes its tier; later ones change nothing and are
// given the tier.
func testTierFixed(f *fixture) {
	f.put(core.NewJob{Group: "low", ID: "l1", Priority: 1})
	f.put(core.NewJob{Group: "mid", ID: "m1", Priority: 2})
	f.put(core.NewJob{Group: "low", ID: "l2", Priority: 4})
	f.put(core.NewJob{Group: "mid", ID: "m2", Priority: 0})
	for group, want := range map[string]int{"low": 1, "mid": 2} {
		equal(f, "tier of "+group, f.group(group).Priority, want)
		for _, id := range f.line(group) {
			equal(f, "priority of "+id, f.job(id).Priority, want)
		}
	}
	f.wantServed("m1", "m2", "l1", "l2")
}

// drains take the only job of group g, a, out of its line.
var drains = map[string]func(f *fixture){
	"complete": func(f *fixture) { f.complete(f.claim("a")) },
	"dead":     func(f *fixture) { f.kill(f.claim("a")) },
	"cancel":   func(f *fixture) { f.settle(f.claim("a"), core.Outcome{Action: core.Cancel}) },
	"skip":     func(f *fixture) { f.retry(f.claim("a"), hour) },
	"expiry": func(f *fixture) {
		l := f.claim("a")
		f.move(core.StateCancelled, "a")
		f.expire(l)
		f.claimNothing()
	},
	"moved to gone":      func(f *fixture) { f.move(core.StateGone, "a") },
	"moved to cancelled": func(f *fixture) { f.move(core.StateCancelled, "a") },
	"moved to dead":      func(f *fixture) { f.move(core.StateDead, "a") },
	"skip head":          func(f *fixture) { f.act("g", core.SkipHead) },
}

func testTierForgotten(f *fixture) {
	for name, drain := range drains {
		for _, next := range []int{0, 4} {
			f := f.otherQueue()
			f.Log(name)
			f.put(core.NewJob{Group: "g", ID: "a", Priority: 2, OnFailure: core.Skip})
			drain(f)
			f.wantNoGroup("g")
			f.put(core.NewJob{Group: "g", ID: "b", Priority: next})
			equal(f, "tier", f.group("g").Priority, next)
			equal(f, "priority", f.job("b").Priority, next)
			f.put(core.NewJob{ID: "u", Priority: 2})
			want := []string{"u", "b"}
			if next == 4 {
				want = []string{"b", "u"}
			}
			f.claimEach(want...)
		}
	}
}

// One batch ends leases of groups in several tiers: each goes back to its own.
func testTierSettledTogether(f *fixture) {
	for p := range core.MaxPriority + 1 {
		f.put(core.NewJob{Group: fmt.Sprint("g", p), ID: fmt.Sprint("a", p), Priority: p})
		f.put(core.NewJob{Group: fmt.Sprint("g", p), ID: fmt.Sprint("b", p), Priority: p})
	}
	leases := f.claimBatch("a4", "a3", "a2", "a1", "a0")
	slices.Reverse(leases)
	f.settleAll(leases, core.Outcome{Action: core.Complete})
	f.claimEach("b4", "b3", "b2", "b1", "b0")
}

// A paused group stays when it drains, its tier does not.
func testTierForgottenPaused(f *fixture) {
	for _, acts := range [][2]core.GroupAct{
		{core.PauseGroup, core.ResumeGroup}, {core.HoldGroup, core.ReleaseGroup},
	} {
		for name, drain := range map[string]func(l core.Lease){
			"complete":              func(l core.Lease) { f.complete(l) },
			"released and deleted":  func(l core.Lease) { f.release(l); f.move(core.StateGone, "a") },
			"released and canceled": func(l core.Lease) { f.release(l); f.act("g", core.SkipHead) },
		} {
			f.Log(name)
			f.put(core.NewJob{Group: "g", ID: "a", Priority: 1})
			l := f.claim("a")
			f.act("g", acts[0])
			drain(l)
			equal(f, "depth", f.group("g").Depth, 0)
			f.put(core.NewJob{Group: "g", ID: "b", Priority: 3})
			equal(f, "tier", f.group("g").Priority, 3)
			f.put(core.NewJob{ID: "u", Priority: 2})
			f.act("g", acts[1])
			leases := f.claimEach("b", "u")
			f.complete(leases...)
			f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		}
	}
}

// As long as one job is in line, whichever, the tier stands.
func testTierKept(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", Priority: 1})
	f.put(core.NewJob{Group: "g", ID: "b", Priority: 4})
	f.complete(f.claim("a"))
	f.put(core.NewJob{Group: "g", ID: "c", Priority: 4})
	f.move(core.StateGone, "b")
	f.put(core.NewJob{Group: "g", ID: "d", Priority: 4})
	f.retry(f.claim("c"), hour)
	f.move(core.StateGone, "c")
	f.put(core.NewJob{Group: "g", ID: "e", Priority: 4})
	equal(f, "tier", f.group("g").Priority, 1)
	f.put(core.NewJob{ID: "u", Priority: 2})
	f.wantServed("u", "d", "e")
}

// A scheduled job asks for a tier when it joins the line, not before.
func testTierAtJoin(f *fixture) {
	f.put(core.NewJob{Group: "busy", ID: "s", Priority: 4, Delay: brief})
	f.put(core.NewJob{Group: "idle", ID: "t", Priority: 3, Delay: brief})
	equal(f, "priority while aside", f.job("s").Priority, 4)
	f.put(core.NewJob{Group: "busy", ID: "a", Priority: 1})
	equal(f, "tier", f.group("busy").Priority, 1)
	f.passes(f.job("t").RunAt)
	f.complete(f.claim("t")) // joins both
	equal(f, "tier", f.group("busy").Priority, 1)
	equal(f, "priority in line", f.job("s").Priority, 1)
	f.put(core.NewJob{ID: "u", Priority: 2})
	f.wantServed("u", "a", "s")
}

func testTierStrict(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "s", Priority: 3, Delay: hour, Scheduling: core.Strict})
	f.put(core.NewJob{Group: "g", ID: "a", Priority: 1})
	equal(f, "tier", f.group("g").Priority, 3)
	equal(f, "priority", f.job("a").Priority, 3)
}

// A redriven job takes the tier of a group that has jobs and brings its own into
// an empty one.
func testTierRedriven(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", Priority: 3})
	f.kill(f.claim("a"))
	f.move(core.StatePending, "a")
	equal(f, "tier", f.group("g").Priority, 3)
	f.kill(f.claim("a"))
	f.put(core.NewJob{Group: "g", ID: "b", Priority: 1})
	f.move(core.StatePending, "a")
	equal(f, "tier", f.group("g").Priority, 1)
	equal(f, "priority", f.job("a").Priority, 1)
	f.put(core.NewJob{ID: "u", Priority: 2})
	f.wantServed("u", "a", "b")
}

func testTierUngrouped(f *fixture) {
	f.put(core.NewJob{ID: "low", Priority: 1})
	f.put(core.NewJob{ID: "high", Priority: 4})
	f.put(core.NewJob{ID: "mid", Priority: 2})
	f.retry(f.claim("high"), 0)
	f.wantServed("high", "mid", "low")
}

func testFloor(f *fixture) {
	for p := range core.MaxPriority + 1 {
		f.put(core.NewJob{Group: fmt.Sprint("g", p), ID: fmt.Sprint("g", p), Priority: p})
	}
	for floor := core.MaxPriority; floor >= 0; floor-- {
		leases := f.tryClaim(core.ClaimRequest{Max: 10, MinPriority: floor}).Leases
		equal(f, "claimed", jobIDs(leases), []string{fmt.Sprint("g", floor)})
	}
}

// One group above the floor is found behind any backlog below it.
func testFloorBacklog(f *fixture) {
	n := f.h.scale(2000)
	batch := make([]core.NewJob, n)
	for i := range batch {
		batch[i] = core.NewJob{Group: fmt.Sprint("low", i), Priority: i % 3}
	}
	f.publish(batch...)
	f.put(core.NewJob{Group: "high", ID: "high", Priority: 3})
	f.put(core.NewJob{ID: "single", Priority: 3})
	leases := f.tryClaim(core.ClaimRequest{Max: 10, MinPriority: 3}).Leases
	equal(f, "claimed", jobIDs(leases), []string{"high", "single"})
	f.retry(leases[0], 0)
	f.retry(leases[1], 0)
	f.complete(f.claimEach("high", "single")...) // without a floor, too
	f.put(core.NewJob{Group: "high", ID: "again", Priority: 4})
	f.put(core.NewJob{ID: "soon", Priority: 3, Delay: core.MinLease})
	f.passes(f.job("soon").RunAt)
	leases = f.tryClaim(core.ClaimRequest{Max: 10, MinPriority: 3}).Leases
	equal(f, "claimed", jobIDs(leases), []string{"again", "soon"})
	leases = f.tryClaim(core.ClaimRequest{Max: 10, MinPriority: 1}).Leases
	for _, l := range leases {
		equal(f, "priority", l.Job.Priority, 2)
	}
	equal(f, "leases", len(leases), min(10, n/3))
}

func testFloorNothing(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", Priority: 2})
	f.put(core.NewJob{ID: "u", Priority: 2})
	for _, floor := range []int{3, 4} {
		equal(f, "claimed", len(f.tryClaim(core.ClaimRequest{Max: 5, MinPriority: floor}).Leases), 0)
	}
	f.wantServed("a", "u")
}

func testTurnsInTier(f *fixture) {
	for round := range 2 {
		for _, p := range []int{0, 3} {
			for g := range 3 {
				name := fmt.Sprintf("t%dg%d", p, g)
				f.put(core.NewJob{Group: name, ID: fmt.Sprint(name, "-", round), Priority: p})
			}
		}
	}
	f.wantServed(
		"t3g0-0", "t3g1-0", "t3g2-0", "t3g0-1", "t3g1-1", "t3g2-1",
		"t0g0-0", "t0g1-0", "t0g2-0", "t0g0-1", "t0g1-1", "t0g2-1",
	)
}

func testByPriority(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", Priority: 1})
	f.put(core.NewJob{Group: "g", ID: "b", Priority: 4})
	f.put(core.NewJob{ID: "u", Priority: 3})
	f.put(core.NewJob{Group: "g", ID: "s", Priority: 2, Delay: hour})
	equal(f, "by priority", f.info().ByPriority, [5]int64{0, 2, 1, 1, 0})
	l := f.claimUpTo(5)
	equal(f, "by priority while running", f.info().ByPriority, [5]int64{0, 2, 1, 1, 0})
	f.complete(l...)
	equal(f, "by priority", f.info().ByPriority, [5]int64{0, 1, 1, 0, 0})
}

// A claim by turn takes what has waited longest, whatever its tier.
func testByTurn(f *fixture) {
	for i, p := range []int{0, 4, 2, 0, 3} {
		f.put(core.NewJob{Group: fmt.Sprint("g", i), ID: fmt.Sprint("a", i), Priority: p})
		f.put(core.NewJob{Group: fmt.Sprint("g", i), ID: fmt.Sprint("b", i), Priority: p})
	}
	byTurn := func(n int) []core.Lease { return f.tryClaim(core.ClaimRequest{Max: n, ByTurn: true}).Leases }
	equal(f, "first", jobIDs(byTurn(1)), []string{"a0"})
	equal(f, "the next three, the highest first", jobIDs(byTurn(3)), []string{"a1", "a2", "a3"})
	last := byTurn(3)
	equal(f, "what is left", jobIDs(last), []string{"a4"})
	f.complete(last...)
	equal(f, "again", jobIDs(byTurn(3)), []string{"b4"})
}

func testByTurnFloor(f *fixture) {
	for i, p := range []int{1, 2, 4, 3} {
		f.put(core.NewJob{Group: fmt.Sprint("g", i), ID: fmt.Sprint("a", i), Priority: p})
	}
	leases := f.tryClaim(core.ClaimRequest{Max: 2, MinPriority: 2, ByTurn: true}).Leases
	equal(f, "claimed", jobIDs(leases), []string{"a2", "a1"})
}

// Groups of a high tier that always have jobs do not starve one of a low tier when
// claims are by turn; when they are not, they do.
func testByTurnStarvesNobody(f *fixture) {
	var batch []core.NewJob
	for i := range 40 {
		batch = append(batch, core.NewJob{Group: fmt.Sprint("high", i%4), Priority: 4})
	}
	f.publish(batch...)
	f.put(core.NewJob{Group: "low", ID: "low"})
	for range 8 {
		leases := f.tryClaim(core.ClaimRequest{Max: 1}).Leases
		equal(f, "priority", leases[0].Job.Priority, 4)
		f.complete(leases...)
	}
	for range 5 {
		leases := f.tryClaim(core.ClaimRequest{Max: 1, ByTurn: true}).Leases
		f.complete(leases...)
		if leases[0].JobID == "low" {
			return
		}
	}
	f.Fatal("four groups of a higher tier were served again before the one that had waited longer")
}
