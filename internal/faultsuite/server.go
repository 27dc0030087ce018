package faultsuite

import (
	"testing"
	"time"
)

// soon is how soon after a fault the same workers and publishers have to be at work
// again. Pauses of clients grow while a server is away, to a second or so; the rest is
// for machines on which other tests run.
const soon = 10 * time.Second

// The server is killed with SIGKILL and restarted under load, several times. What
// was acknowledged is there again, and the same processes go on by themselves.
func testServerKilled(t *testing.T, store Store) {
	eachWay(t, func(t *testing.T, kept bool) {
		s := newStorm(t, store, store.Start(t), kept)
		for range 2 {
			s.addWorker(mixedWorker)
			s.addPublisher(stormPublish(kept))
		}
		s.awaitAtWork(0)
		best := patience
		for range 4 {
			s.pass(700 * time.Millisecond)
			s.server.Kill()
			s.pass(300 * time.Millisecond)
			s.server.Restart()
			best = min(best, s.awaitAtWork(now(), "restart of the server"))
		}
		s.wantSoon(best)
		s.pass(300 * time.Millisecond)
		s.settleDown()
		s.judge()
	})
}

// wantSoon checks how long it took until all were at work again, in the best of
// some cases: a machine that is busy with something else proves nothing.
func (s *storm) wantSoon(best time.Duration) {
	s.Helper()
	if best > soon {
		s.Errorf("it took at least %v until all were at work again, want less than %v", best, soon)
	}
}

// awaitAtWork waits until after the time from each worker has claimed and settled
// and each publisher has published, and gives how long that took, since whatever
// happened then.
func (s *storm) awaitAtWork(from int64, since ...string) time.Duration {
	s.Helper()
	slowest := time.Duration(0)
	for _, p := range append(append([]*process(nil), s.workers...), s.publishers...) {
		kinds := []Kind{Claimed, Settled}
		if p.role == "publisher" {
			kinds = []Kind{Acked}
		}
		for _, kind := range kinds {
			e := s.history.await(string(kind)+" by "+p.name, 0, func(e Event) bool {
				return e.Proc == p.name && e.Kind == kind && e.Sent > from && e.Err == ""
			})
			slowest = max(slowest, time.Duration(e.Done-from))
		}
	}
	for _, what := range since {
		s.Logf("all are at work %v after the %s", slowest.Round(time.Millisecond), what)
	}
	return slowest
}

// The server stands still for longer than a lease. Then what it was sent meanwhile
// takes effect, or does not, but not both.
func testServerFrozen(t *testing.T, store Store) {
	eachWay(t, func(t *testing.T, kept bool) {
		s := newStorm(t, store, store.Start(t), kept)
		slow := mixedWorker
		slow.Handling = time.Second // so that handlers lose their leases
		for range 2 {
			s.addWorker(slow)
			s.addPublisher(stormPublish(kept))
		}
		s.awaitAtWork(0)
		lost, best := 0, patience
		for i := 0; i < 3 || lost == 0 && i < 10; i++ {
			s.pass(500 * time.Millisecond)
			from := s.history.len()
			s.server.Freeze()
			time.Sleep(2 * slow.Lease) // a time, not a condition, is what this is about
			for _, e := range s.history.since(from) {
				if e.Kind == Ended && e.Err == Lost {
					lost++
				}
			}
			s.server.Thaw()
			best = min(best, s.awaitAtWork(now(), "thaw of the server"))
		}
		s.wantSoon(best)
		s.Logf("%d handlers were told that they had lost their leases while the server was frozen", lost)
		if lost == 0 {
			s.Error("no handler was told that it had lost its lease while the server was frozen")
		}
		s.settleDown()
		s.judge()
	})
}
