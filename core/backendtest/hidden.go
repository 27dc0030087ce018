package backendtest

import (
	"fmt"

	"github.com/rota-queue/rota/core"
)

// hiddenTests put a thousand groups that may not be claimed in front of one
// that may.
var hiddenTests = []test{
	{"Leased", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{})
		f.claimUpTo(n)
	})},
	{"LeasedUngrouped", hiddenTest(func(f *fixture, n int) {
		f.publish(make([]core.NewJob, n)...)
		f.claimUpTo(n)
	})},
	{"Parked", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{})
		f.settleAll(f.claimUpTo(n), core.Outcome{Action: core.Retry, Delay: hour})
	})},
	{"ParkedUngrouped", hiddenTest(func(f *fixture, n int) {
		f.publish(make([]core.NewJob, n)...)
		f.settleAll(f.claimUpTo(n), core.Outcome{Action: core.Snooze, Delay: hour})
	})},
	{"ParkedStrict", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{Delay: hour, Scheduling: core.Strict})
	})},
	{"StandingAside", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{Delay: hour})
	})},
	{"Held", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{OnExhausted: core.Hold})
		f.settleAll(f.claimUpTo(n), core.Outcome{Action: core.Dead, Error: "hold"})
	})},
	{"Paused", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{})
		for i := range n {
			f.act(fmt.Sprint("crowd", i), core.PauseGroup)
		}
	})},
	{"PausedBefore", hiddenTest(func(f *fixture, n int) {
		f.configure(strictTurns)
		for i := range n {
			f.act(fmt.Sprint("crowd", i), core.PauseGroup)
		}
		f.crowd(n, core.NewJob{})
	})},
	{"PausedWhileLeased", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{})
		leases := f.claimUpTo(n)
		for i := range n {
			f.act(fmt.Sprint("crowd", i), core.PauseGroup)
		}
		f.expire(leases...)
	})},
	{"SpentAndExpired", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{MaxAttempts: 1, OnExhausted: core.Hold})
		f.expire(f.claimUpTo(n)...)
	})},
	{"HigherTiers", hiddenTest(func(f *fixture, n int) {
		f.crowd(n, core.NewJob{Priority: 4})
		leases := f.claimUpTo(n)
		f.settleAll(leases[:n/2], core.Outcome{Action: core.Retry, Delay: hour})
	})},
}

// hiddenTest lets block set up n groups that are in the way and then wants a
// free group, and a free job without a group, to be found at once.
func hiddenTest(block func(f *fixture, n int)) func(*fixture) {
	return func(f *fixture) {
		f.configure(strictTurns)
		block(f, f.h.scale(1000))
		f.add("free", "a", "b")
		f.add("", "u")
		f.complete(f.claim("a"))
		f.claimEach("u", "b")
		f.claimNothing()
	}
}

// crowd publishes a job like this one into n groups.
func (f *fixture) crowd(n int, job core.NewJob) {
	f.Helper()
	batch := make([]core.NewJob, 2*n)
	for i := range batch {
		batch[i] = job
		batch[i].Group = fmt.Sprint("crowd", i%n)
	}
	f.publish(batch...)
}

// settleAll settles leases of several groups in one batch.
func (f *fixture) settleAll(leases []core.Lease, o core.Outcome) []core.SettleResult {
	f.Helper()
	outcomes := make([]core.Outcome, len(leases))
	for i, l := range leases {
		outcomes[i] = o
		outcomes[i].Lease = l.LeaseRef
	}
	results := f.trySettleAll(outcomes...)
	for i := range results {
		f.check(results[i].Err)
	}
	return results
}
