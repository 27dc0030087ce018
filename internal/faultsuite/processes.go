package faultsuite

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

// eachWay runs a storm twice: on a queue that keeps completed jobs, so that the
// store itself tells what became of each, and on one that does not.
func eachWay(t *testing.T, storm func(*testing.T, bool)) {
	var tests []subtest
	for name, kept := range map[string]bool{"Kept": true, "NotKept": false} {
		tests = append(tests, subtest{name, slotted(func(t *testing.T) { storm(t, kept) })})
	}
	together(t, tests)
}

// Workers and publishers are killed with SIGKILL again and again, and workers stand
// still for longer than a lease. What was
// acknowledged is done once, in order, and nothing is left over.
func testProcessesKilled(t *testing.T, store Store) {
	eachWay(t, func(t *testing.T, kept bool) {
		s := newStorm(t, store, store.Start(t), kept)
		for range 3 {
			s.addWorker(mixedWorker)
		}
		for range 2 {
			s.addPublisher(stormPublish(kept))
		}
		s.awaitAtWork(0)
		for range 4 {
			s.pass(250 * time.Millisecond)
			s.replace(s.workers)
			s.pass(250 * time.Millisecond)
			s.replace(s.publishers)
			s.pass(250 * time.Millisecond)
			s.replace(s.workers)
			s.pause(s.workers)
		}
		s.awaitVariety()
		s.settleDown()
		s.judge()
	})
}

// pause lets a random one of the processes stand still for longer than a lease.
func (s *storm) pause(list []*process) {
	s.Helper()
	p := list[rand.N(len(list))]
	s.check(p.Freeze())
	s.pass(2 * mixedWorker.Lease)
	s.check(p.Thaw())
}

// awaitVariety waits until the storm was one: all kinds of outcomes were accepted,
// and leases ran out.
func (s *storm) awaitVariety() {
	s.Helper()
	var actions [core.Cancel + 1]bool
	expired := false
	s.history.await("outcomes of all kinds, and leases that ran out", 0, func(e Event) bool {
		switch {
		case e.Kind == Settled && e.Err == "":
			actions[e.Action] = true
		case e.Kind == Settled && e.Err == Lost, e.Kind == Ended && e.Err == Lost:
			expired = true
		}
		return expired && !slices.Contains(actions[core.Complete:], false)
	})
}
