package faultsuite

import (
	"slices"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

// The server's clock is far from that of the workers: nothing depends on theirs.
func testClockOff(t *testing.T, store Store) {
	var tests []subtest
	for name, off := range map[string]time.Duration{"Ahead": time.Hour, "Behind": -time.Hour} {
		tests = append(tests, subtest{name, slotted(func(t *testing.T) {
			s := newStorm(t, store, store.StartClock(t, off), true)
			s.wantOff(off)
			for range 2 {
				s.addWorker(mixedWorker)
				s.addPublisher(stormPublish(true))
			}
			s.awaitAtWork(0)
			for range 4 {
				s.pass(400 * time.Millisecond)
				s.replace(s.workers)
			}
			s.settleDown()
			s.judge()
		})})
	}
	together(t, tests)
}

// wantOff checks where the store's clock is.
func (s *storm) wantOff(off time.Duration) {
	s.Helper()
	at, err := s.backend.Now(s.ctx)
	s.check(err)
	if wrong := time.Until(at) - off; wrong.Abs() > time.Minute {
		s.Fatalf("the store's clock is off by %v, want %v", time.Until(at), off)
	}
}

// setClock sets the server's clock, forward.
func (s *storm) setClock(server ClockServer, off time.Duration) {
	before := now()
	server.SetClock(off)
	// The step is somewhere between the two.
	s.steps = append(s.steps, before, now())
}

// The server's clock is set forward: all leases have ended early and others take
// over, but what their holders then write is refused.
func testClockForward(t *testing.T, store Store) {
	slotted(func(t *testing.T) {
		server := store.StartClock(t, 0)
		s := newStorm(t, store, server, true)
		for range 2 {
			s.addWorker(mixedWorker)
			s.addPublisher(stormPublish(true))
		}
		s.awaitAtWork(0)
		for i := range 3 {
			s.pass(600 * time.Millisecond)
			s.setClock(server, time.Duration(i+1)*time.Hour)
			s.awaitAtWork(now(), "step of the clock")
		}
		s.settleDown()
		refused := 0
		for _, e := range s.judge() {
			if (e.Kind == Settled || e.Kind == Wrote) && e.Err == Lost {
				refused++
			}
		}
		t.Logf("%d writes of holders were refused", refused)
	})(t)
}

// plain processes have no delays, and nothing ends their leases: these are so long
// that a busy machine does not let them run out, which they could not do while the
// clock stands still.
var (
	plainWorker  = workerSpec{Concurrency: 8, Lease: 2 * time.Second, Handler: "plain"}
	plainPublish = publisherSpec{Groups: groupNames(true), Batch: stormBatch, Pause: stormPause, Insist: true, Plain: true}
)

// The server's clock is set back by an hour. What does not wait for a time goes on
// as before, in order, and nothing is lost. What waits for a time goes on too,
// unless the store says that it stalls.
func testClockBack(t *testing.T, store Store) {
	slotted(func(t *testing.T) {
		const lease = time.Second
		server := store.StartClock(t, time.Hour)
		s := newStorm(t, store, server, true)
		for range 2 {
			s.addWorker(plainWorker)
			s.addPublisher(plainPublish)
		}
		s.awaitAtWork(0)
		s.pass(500 * time.Millisecond)
		server.SetClock(0)
		s.awaitAtWork(now(), "step back of the clock")
		s.pass(time.Second)
		for _, p := range s.publishers {
			s.end(p)
		}
		s.wantNoStall("a delay of 200ms is over", 200*time.Millisecond, func() func(Event) bool {
			s.publish(core.NewJob{ID: "delayed", Delay: 200 * time.Millisecond})
			return func(e Event) bool { return e.Kind == Started && e.Job == "delayed" }
		})
		for _, w := range s.workers {
			s.end(w)
		}
		heir := s.addWorker(plainWorker)
		s.publish(core.NewJob{ID: "hello"})
		s.history.await("a worker is at work", 0, is(Started, heir.name))
		s.check(heir.Freeze())
		s.pass(500 * time.Millisecond) // for a claim it has sent, which would take the job
		s.publish(core.NewJob{ID: "held", Group: "held"})
		holder := s.start("worker", workerSpec{Concurrency: 1, Lease: lease, Handler: "hold"})
		s.history.await("another worker holds a job", 0, is(Started, holder.name))
		s.check(heir.Thaw())
		s.wantNoStall("what a killed worker held is taken over", lease, func() func(Event) bool {
			holder.Kill()
			return func(e Event) bool { return e.Proc == heir.name && e.Job == "held" }
		})
		s.setClock(server, time.Hour)
		s.settleDown()
		s.judge()
	})(t)
}

// wantNoStall does something that shows by an event after the time d, and checks
// that it does not take much longer, or tells what happens if the store may stall.
func (s *storm) wantNoStall(what string, d time.Duration, do func() func(Event) bool) {
	s.Helper()
	bound := d + soon
	if s.store.Stalls {
		bound = d + 2*time.Second
	}
	i, from := s.history.len(), time.Now()
	want := do()
	for time.Since(from) < bound {
		if slices.ContainsFunc(s.history.since(i), want) {
			s.Logf("after the step back of the clock %s after %v", what, time.Since(from).Round(time.Millisecond))
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.Logf("after the step back of the clock it takes more than %v until %s", bound, what)
	if !s.store.Stalls {
		s.Errorf("the store stalls after its clock was set back: not after %v: %s", bound, what)
	}
}
