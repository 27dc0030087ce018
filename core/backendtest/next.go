package backendtest

import (
	"time"

	"github.com/rota-queue/rota/core"
)

// nextTests are about what a claim says of the next thing to fall due: it may
// be sooner than the truth, never later, and zero when there is none.
var nextTests = []test{
	{"NothingKnown", testNextNothing},
	{"WhatFallsDue", testNextDue},
	{"SoonestOfMany", testNextSoonest},
	{"FullClaimSaysNothing", testNextFull},
	{"AfterAClaimOfSome", testNextAfterSome},
}

func testNextNothing(f *fixture) {
	next := func() time.Duration { f.Helper(); return f.tryClaim(core.ClaimRequest{Max: 5}).Next }
	equal(f, "next of no queue", next(), 0)
	f.add("g", "a")
	f.wantServed("a")
	equal(f, "next of an empty queue", next(), 0)
	f.act("g", core.PauseGroup)
	f.add("g", "b")
	f.put(core.NewJob{Group: "h", ID: "c", OnExhausted: core.Hold})
	f.add("h", "d")
	f.kill(f.claim("c"))
	equal(f, "next when all waits for a person", f.tryClaimTwice().Next, 0)
}

// tryClaimTwice claims nothing twice, for stores that meet what is set aside
// only once.
func (f *fixture) tryClaimTwice() core.ClaimResult {
	f.Helper()
	f.claimNothing()
	return f.tryClaim(core.ClaimRequest{Max: 5})
}

// Each of these falls due by itself in half an hour.
func testNextDue(f *fixture) {
	const half = 30 * time.Minute
	for name, prepare := range map[string]func(f *fixture){
		"a job aside":    func(f *fixture) { f.put(core.NewJob{Group: "g", Delay: half}) },
		"a strict job":   func(f *fixture) { f.put(core.NewJob{Group: "g", Delay: half, Scheduling: core.Strict}) },
		"a single job":   func(f *fixture) { f.put(core.NewJob{Delay: half}) },
		"a parked group": func(f *fixture) { f.add("g", "a"); f.retry(f.claim("a"), half) },
		"a snoozed job":  func(f *fixture) { f.add("", "a"); f.snooze(f.claim("a"), half) },
		"a skipped job": func(f *fixture) {
			f.put(core.NewJob{Group: "g", ID: "a", OnFailure: core.Skip})
			f.retry(f.claim("a"), half)
		},
		"a lease":             func(f *fixture) { f.add("g", "a"); f.extend(f.claim("a"), half) },
		"a lease of no group": func(f *fixture) { f.add("", "a"); f.extend(f.claim("a"), half) },
		"a low tier":          func(f *fixture) { f.put(core.NewJob{Group: "g", Delay: half, Scheduling: core.Strict, Priority: 0}) },
		"a high tier":         func(f *fixture) { f.put(core.NewJob{Group: "g", Delay: half, Scheduling: core.Strict, Priority: 4}) },
	} {
		f := f.otherQueue()
		prepare(f)
		for range 2 {
			next := f.tryClaim(core.ClaimRequest{Max: 5}).Next
			if next <= 0 || next > half {
				f.Errorf("%s falls due in %s, want at most %s", name, next, half)
			}
		}
	}
}

func testNextSoonest(f *fixture) {
	f.put(core.NewJob{Group: "g", Delay: 4 * hour})
	f.put(core.NewJob{Group: "h", Delay: 2 * hour, Scheduling: core.Strict, Priority: 3})
	f.put(core.NewJob{Group: "k", ID: "a", Priority: 1})
	f.put(core.NewJob{ID: "b", Delay: 3 * hour})
	f.claim("a") // for an hour
	next := f.tryClaim(core.ClaimRequest{Max: 5}).Next
	if next <= 0 || next > hour {
		f.Errorf("the next falls due in %s, want at most %s", next, hour)
	}
}

func testNextFull(f *fixture) {
	f.put(core.NewJob{Group: "g", Delay: hour})
	f.add("h", "a")
	f.add("k", "b")
	equal(f, "next of a full claim", f.tryClaim(core.ClaimRequest{Max: 2}).Next, 0)
}

// A claim that found some, but less than it asked for, says it too.
func testNextAfterSome(f *fixture) {
	f.put(core.NewJob{Group: "g", Delay: hour / 2})
	f.add("h", "a")
	res := f.tryClaim(core.ClaimRequest{Max: 5})
	equal(f, "claimed", jobIDs(res.Leases), []string{"a"})
	if res.Next <= 0 || res.Next > hour/2 {
		f.Errorf("the next falls due in %s, want at most %s", res.Next, hour/2)
	}
}
