package backendtest

import (
	"time"

	"github.com/rota-queue/rota/core"
)

var clockTests = []test{
	{"NowMovesOn", testNow},
	{"Leases", testClockLeases},
	{"Delays", testClockDelays},
	{"RunTimes", testClockRunTimes},
	{"Stamps", testClockStamps},
	{"Microseconds", testMicroseconds},
	{"HandlesAgree", testHandlesAgree},
	{"FarAway", testFarAway},
}

func testNow(f *fixture) {
	last := f.now()
	for range 10 {
		now := f.now()
		if now.Before(last) {
			f.Fatalf("the clock went from %s to %s", clock(last), clock(now))
		}
		last = now
	}
	f.passes(last.Add(20 * time.Millisecond))
}

// A lease lasts for what was asked from the store's present.
func testClockLeases(f *fixture) {
	f.add("g", "a")
	from := f.now()
	l := f.tryClaim(core.ClaimRequest{Lease: 10 * time.Minute}).Leases[0]
	f.within("end of the lease", l.Until, from.Add(10*time.Minute), f.now().Add(10*time.Minute))
	equal(f, "end in the job of the lease", clock(l.Job.Lease.Until), clock(l.Until))
	equal(f, "end in the stored job", clock(f.job("a").Lease.Until), clock(l.Until))
	equal(f, "end in the group", clock(f.group("g").Lease.Until), clock(l.Until))

	for _, d := range []time.Duration{time.Hour, core.MinLease, time.Minute} {
		from = f.now()
		ext := f.extend(l, d)
		f.check(ext.Err)
		f.within("end of the extended lease", ext.Until, from.Add(d), f.now().Add(d))
		equal(f, "end in the stored job", clock(f.job("a").Lease.Until), clock(ext.Until))
		equal(f, "end in the group", clock(f.group("g").Lease.Until), clock(ext.Until))
	}
	f.claimNothing() // the last extension counts, not the shortest
}

func testClockDelays(f *fixture) {
	from := f.now()
	f.put(core.NewJob{ID: "s", Delay: hour})
	f.within("run time of a delayed job", f.job("s").RunAt, from.Add(hour), f.now().Add(hour))
	for _, group := range []string{"g", ""} {
		f.put(core.NewJob{Group: group, ID: "a"})
		from = f.now()
		f.retry(f.claim("a"), hour)
		f.within("run time of a retry", f.job("a").RunAt, from.Add(hour), f.now().Add(hour))
		f.move(core.StatePending, "a")
		from = f.now()
		f.snooze(f.claim("a"), 2*hour)
		f.within("run time of a snoozed job", f.job("a").RunAt, from.Add(2*hour), f.now().Add(2*hour))
		f.move(core.StateGone, "a")
	}
}

func testClockRunTimes(f *fixture) {
	at := f.now().Add(brief).Truncate(time.Microsecond)
	for _, group := range []string{"g", ""} {
		f.put(core.NewJob{Group: group, ID: "in" + group, RunAt: at})
		if f.now().Before(at) { // a time of the past becomes that of the publish
			equal(f, "run time", clock(f.job("in"+group).RunAt), clock(at))
		}
	}
	if f.now().Before(at) {
		leases := f.claimUpTo(5)
		if now := f.now(); len(leases) > 0 && now.Before(at) {
			f.Fatalf("claimed %v at %s, before %s", jobIDs(leases), clock(now), clock(at))
		}
	}
	f.passes(at)
	f.eventually("both are claimed", func() bool {
		f.claimUpTo(5)
		return f.state("in") == core.StateRunning && f.state("ing") == core.StateRunning
	})
}

// Each time a job carries is that of the store as it happened.
func testClockStamps(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	from := f.now()
	f.add("g", "a")
	published := f.now()
	job := f.job("a")
	f.within("CreatedAt", job.CreatedAt, from, published)
	f.within("RunAt", job.RunAt, from, published)
	if !job.ClaimedAt.IsZero() || !job.FinishedAt.IsZero() {
		f.Errorf("a pending job was claimed at %v and finished at %v", job.ClaimedAt, job.FinishedAt)
	}
	l := f.claim("a")
	claimed := f.now()
	f.within("ClaimedAt", l.Job.ClaimedAt, published, claimed)
	f.complete(l)
	job = f.job("a")
	f.within("CreatedAt", job.CreatedAt, from, published)
	f.within("ClaimedAt", job.ClaimedAt, published, claimed)
	f.within("FinishedAt", job.FinishedAt, claimed, f.now())
	info := f.info()
	f.within("Now of the queue", info.Now, claimed, f.now())
}

// Times are kept to the microsecond.
func testMicroseconds(f *fixture) {
	at := time.Date(2101, 2, 3, 4, 5, 6, 789_123_000, time.UTC)
	zone := time.FixedZone("elsewhere", 5*3600+1800)
	f.put(core.NewJob{ID: "a", RunAt: at.In(zone), Deadline: at.Add(time.Microsecond).In(zone), Timeout: 90 * time.Second})
	job := f.job("a")
	equal(f, "run time", clock(job.RunAt), clock(at))
	equal(f, "deadline", clock(job.Deadline), clock(at.Add(time.Microsecond)))
	equal(f, "timeout", job.Timeout, 90*time.Second)
}

func testHandlesAgree(f *fixture) {
	other := f.otherHandle()
	for range 5 {
		a, b, c := f.now(), other.now(), f.now()
		f.within("clock of the other handle", b, a, c)
	}
	f.add("g", "a")
	l := f.tryClaim(core.ClaimRequest{Lease: brief}).Leases[0]
	other.claimNothing()
	other.passes(l.Until)
	other.claim("a")
}

// The ends of what the rules allow.
func testFarAway(f *fixture) {
	f.put(core.NewJob{Group: "g", ID: "far", Delay: core.MaxDelay})
	f.put(core.NewJob{Group: "g", ID: "last", RunAt: time.Date(2200, 12, 31, 23, 59, 59, 0, time.UTC)})
	f.put(core.NewJob{Group: "g", ID: "first", RunAt: time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)})
	f.within("run time", f.job("far").RunAt, f.now().Add(core.MaxDelay-hour), f.now().Add(core.MaxDelay))
	l := f.tryClaim(core.ClaimRequest{Max: 5, Lease: core.MaxDelay}).Leases
	equal(f, "claimed", jobIDs(l), []string{"first"})
	f.within("end of the lease", l[0].Until, f.now().Add(core.MaxDelay-hour), f.now().Add(core.MaxDelay))
	equal(f, "scheduled", f.ids(core.JobFilter{State: core.StateScheduled}), []string{"far", "last"})
	f.complete(l[0])
}
