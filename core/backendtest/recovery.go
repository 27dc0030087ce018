package backendtest

import (
	"fmt"

	"github.com/rota-queue/rota/core"
)

var recoveryTests = []test{
	{"ClaimTakesOver", testClaimTakesOver},
	{"NoSweeper", testNoSweeper},
	{"AttemptCountedAtClaim", testAttemptAtClaim},
	{"PoisonJob", testPoisonJob},
	{"GoesOnWithNextInSameClaim", testNextInSameClaim},
	{"NextIsNotDue", testNextNotDue},
	{"ExhaustedHolds", testExhaustedHolds},
	{"CancelRequested", testCancelledByExpiry},
	{"CancelRequestedLastAttempt", testCancelledBeforeDead},
	{"NotKept", testExpiredNotKept},
	{"Ungrouped", testUngroupedRecovery},
	{"WhilePaused", testRecoveredWhilePaused},
	{"WhileHeld", testRecoveredWhileHeld},
	{"SkipKeepsPlace", testExpirySkip},
	{"FreshDelayIsNone", testExpiryNoDelay},
	{"ManyAtOnce", testManyExpired},
	{"OneOfManyClaimers", testOneTakesOver},
	{"BelowTheFloor", testExpiredBelowFloor},
}

func testClaimTakesOver(f *fixture) {
	f.add("g", "a", "b")
	from := f.now()
	lost := f.claim("a")
	f.check(f.b.Save(f.ctx, lost.LeaseRef, core.Patch{Result: []byte("half")}))
	f.expire(lost)

	next := f.otherHandle().claim("a")
	equal(f, "attempt", next.Job.Attempt, 2)
	equal(f, "state", next.Job.State, core.StateRunning)
	equal(f, "progress", string(next.Job.Result), "half")
	if next.Token == lost.Token {
		f.Fatal("the next lease has the same token")
	}
	job := f.job("a")
	for _, failures := range [][]core.Failure{next.Job.Failures, job.Failures} {
		equal(f, "number of failures", len(failures), 1)
		failure := failures[0]
		f.within("time of the failure", failure.At, from, f.now())
		failure.At = job.CreatedAt
		equal(f, "failure", failure, core.Failure{
			Attempt: 1, At: job.CreatedAt, Error: core.LeaseExpired, Worker: owner,
		})
	}
	equal(f, "counters", f.counted(), core.DayStats{Failed: 1})
	f.complete(next)
	f.wantServed("b")
}

// The claim itself finds what ran out, with nothing else going on.
func testNoSweeper(f *fixture) {
	f.add("g", "a")
	f.add("", "u")
	leases := f.tryClaim(core.ClaimRequest{Max: 5, Lease: brief}).Leases
	equal(f, "claimed", jobIDs(leases), []string{"a", "u"})
	f.claimNothing()
	for _, l := range leases {
		f.passes(l.Until)
	}
	again := f.claimUpTo(5)
	equal(f, "claimed again", len(again), 2)
	for _, l := range again {
		equal(f, "attempt", l.Job.Attempt, 2)
	}
}

func testAttemptAtClaim(f *fixture) {
	f.add("g", "a")
	equal(f, "attempt before the claim", f.job("a").Attempt, 0)
	for attempt := 1; attempt <= 3; attempt++ {
		l := f.claim("a")
		equal(f, "attempt in the lease", l.Job.Attempt, attempt)
		equal(f, "attempt in the store", f.job("a").Attempt, attempt)
		f.expire(l)
	}
	equal(f, "failures", len(f.claim("a").Job.Failures), 3)
}

// A job that kills its worker each time ends in the dead letters.
func testPoisonJob(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "poison", MaxAttempts: 3})
	f.add("g", "next")
	for range 3 {
		f.expire(f.claim("poison"))
	}
	f.wantState("poison", core.StateRunning) // nobody has looked yet
	l := f.claim("next")
	job := f.job("poison")
	equal(f, "state", job.State, core.StateDead)
	equal(f, "attempt", job.Attempt, 3)
	equal(f, "failures", len(job.Failures), 3)
	for i, failure := range job.Failures {
		equal(f, "number of the attempt", failure.Attempt, i+1)
		equal(f, "error", failure.Error, core.LeaseExpired)
	}
	if job.Lease != nil || job.FinishedAt.IsZero() {
		f.Errorf("the dead job has lease %v and finish time %v", job.Lease, job.FinishedAt)
	}
	equal(f, "counters", f.counted(), core.DayStats{Failed: 3, Dead: 1})
	f.complete(l)
	f.claimNothing()
}

// One claim recovers a chain of groups whose jobs are spent and still hands out
// as much as there is.
func testNextInSameClaim(f *fixture) {
	for i := range 5 {
		group := fmt.Sprint("g", i)
		f.put(core.NewJob{Group: group, ID: "poison" + group, MaxAttempts: 1})
		if i%2 == 0 {
			f.add(group, "next"+group)
		}
	}
	f.add("free", "free")
	leases := f.claimUpTo(5)
	equal(f, "leases", len(leases), 5)
	f.expire(leases...)
	equal(f, "claimed", len(f.claimUpTo(10)), 4)
	equal(f, "dead", len(f.ids(core.JobFilter{State: core.StateDead})), 5)
	for i := range 5 {
		group := fmt.Sprint("g", i)
		if i%2 == 1 {
			f.wantNoGroup(group)
			continue
		}
		equal(f, "head", f.group(group).Head, "next"+group)
		f.wantState("next"+group, core.StateRunning)
	}
}

// The job behind one that died may have to wait for its time.
func testNextNotDue(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "poison", MaxAttempts: 1})
	f.put(core.NewJob{Group: "g", ID: "strict", Delay: hour, Scheduling: core.Strict})
	f.expire(f.claim("poison"))
	f.add("free", "free")
	f.claimBatch("free")
	f.wantState("poison", core.StateDead)
	f.wantState("strict", core.StateScheduled)
	equal(f, "due since", clock(f.group("g").DueSince), clock(f.job("strict").RunAt))
	f.move(core.StatePending, "strict")
	f.claim("strict")
}

func testExhaustedHolds(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "poison", MaxAttempts: 1, OnExhausted: core.Hold})
	f.add("g", "next")
	f.expire(f.claim("poison"))
	f.claimNothing()
	f.wantState("poison", core.StateDead)
	info := f.group("g")
	equal(f, "held", info.Held, true)
	equal(f, "held by", info.HeldBy, "poison")
	if info.Lease != nil {
		f.Errorf("the held group has lease %+v", info.Lease)
	}
	f.act("g", core.ReleaseGroup)
	f.wantServed("next")
}

// A job somebody cancelled while its worker was silent is not tried again.
func testCancelledByExpiry(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.move(core.StateCancelled, "a")
	f.expire(l)
	f.claim("b")
	job := f.job("a")
	equal(f, "state", job.State, core.StateCancelled)
	equal(f, "failures", len(job.Failures), 1)
	equal(f, "counters", f.counted(), core.DayStats{Failed: 1, Cancelled: 1})
}

func testCancelledBeforeDead(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: 1, OnExhausted: core.Hold})
	f.add("g", "b")
	l := f.claim("a")
	f.move(core.StateCancelled, "a")
	f.expire(l)
	f.claim("b")
	f.wantState("a", core.StateCancelled)
	equal(f, "held", f.group("g").Held, false)
}

func testExpiredNotKept(f *fixture) {
	f.configure(core.QueueConfig{DeadRetention: core.None, CancelledRetention: core.None})
	f.put(core.NewJob{Group: "g", ID: "poison", MaxAttempts: 1})
	f.add("h", "cancelled")
	leases := f.claimBatch("poison", "cancelled")
	f.move(core.StateCancelled, "cancelled")
	f.expire(leases...)
	f.claimNothing()
	f.wantState("poison", core.StateGone)
	f.wantState("cancelled", core.StateGone)
	f.wantNoGroup("g")
	f.wantNoGroup("h")
	equal(f, "counters", f.counted(), core.DayStats{Failed: 2, Dead: 1, Cancelled: 1})
}

func testUngroupedRecovery(f *fixture) {
	f.put(core.NewJob{ID: "a", MaxAttempts: 2})
	f.expire(f.claim("a"))
	l := f.claim("a")
	equal(f, "attempt", l.Job.Attempt, 2)
	f.expire(l)
	f.claimNothing()
	f.wantState("a", core.StateDead)
	equal(f, "failures", len(f.job("a").Failures), 2)
	f.claimNothing()
}

// A claim that meets an expired lease of a paused group recovers it and then
// sets the group aside.
func testRecoveredWhilePaused(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.act("g", core.PauseGroup)
	f.expire(l)
	f.claimNothing()
	job := f.job("a")
	equal(f, "state", job.State, core.StatePending)
	equal(f, "attempt", job.Attempt, 1)
	equal(f, "failures", len(job.Failures), 1)
	if info := f.group("g"); info.Lease != nil || !info.Paused || !info.DueSince.IsZero() {
		f.Errorf("group is %+v, want it paused, free and not due", info)
	}
	f.claimNothing()
	f.act("g", core.ResumeGroup)
	equal(f, "attempt", f.claim("a").Job.Attempt, 2)
	equal(f, "failures", len(f.job("a").Failures), 1)
}

func testRecoveredWhileHeld(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "a", MaxAttempts: 1})
	f.add("g", "b")
	l := f.claim("a")
	f.act("g", core.HoldGroup)
	f.expire(l)
	f.claimNothing()
	f.wantState("a", core.StateDead)
	equal(f, "held by", f.group("g").HeldBy, "")
	f.act("g", core.ReleaseGroup)
	f.wantServed("b")
}

// Skip is about failures that a handler reports; an expired job keeps its place.
func testExpirySkip(f *fixture) {
	f.configure(core.QueueConfig{OnFailure: core.Skip})
	f.add("g", "a", "b")
	f.expire(f.claim("a"))
	f.wantServed("a", "b")
}

// The job of an expired lease may run at once, whatever delay it once had.
func testExpiryNoDelay(f *fixture) {
	f.add("g", "a")
	f.retry(f.claim("a"), core.MinLease)
	f.passes(f.job("a").RunAt)
	f.expire(f.claim("a"))
	equal(f, "attempt", f.claim("a").Job.Attempt, 3)
}

func testManyExpired(f *fixture) {
	n := f.h.scale(300)
	batch := make([]core.NewJob, n)
	for i, id := range names("j", n) {
		batch[i] = core.NewJob{ID: id}
		if i%2 == 0 {
			batch[i].Group = "g" + id
		}
	}
	f.publish(batch...)
	f.expire(f.claimUpTo(n)...)
	leases := f.claimUpTo(n)
	equal(f, "claimed again", len(leases), n)
	for _, l := range leases {
		equal(f, "attempt", l.Job.Attempt, 2)
	}
	equal(f, "failed", f.counted().Failed, int64(n))
}

// Of many claimers that find the same expired lease one takes it over, and the
// attempt is recorded once.
func testOneTakesOver(f *fixture) {
	handles := []core.Backend{f.b, f.open()}
	f.add("g", "a")
	l := f.claim("a")
	for round := 1; round <= 5; round++ {
		f.expire(l)
		won := make([]core.ClaimResult, 6)
		f.together(len(won), func(i int) (err error) {
			won[i], err = handles[i%2].Claim(f.ctx, core.ClaimRequest{Queue: f.queue, Max: 2, Lease: hour})
			return err
		})
		var leases []core.Lease
		for _, res := range won {
			leases = append(leases, res.Leases...)
		}
		equal(f, "leases", len(leases), 1)
		l = leases[0]
		equal(f, "attempt", l.Job.Attempt, round+1)
		equal(f, "failures", len(l.Job.Failures), round)
	}
	equal(f, "failed", f.counted().Failed, 5)
}

// A claim with a floor neither takes nor needs what ran out below it.
func testExpiredBelowFloor(f *fixture) {
	f.add("g", "a")
	f.expire(f.claim("a"))
	f.put(core.NewJob{Group: "h", ID: "high", Priority: 3})
	leases := f.tryClaim(core.ClaimRequest{Max: 5, MinPriority: 2}).Leases
	equal(f, "claimed", jobIDs(leases), []string{"high"})
	f.claim("a")
}
