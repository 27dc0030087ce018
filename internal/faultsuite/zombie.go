package faultsuite

import (
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

// A worker stands still until others have taken over its jobs, and goes on then:
// the contexts of its handlers end because of the lost leases, and whatever they
// write is refused, whether the next holder is at work or done.
func testZombieWorker(t *testing.T, store Store) {
	var tests []subtest
	for handler, kinds := range map[string]Kind{"hold": Started, "prompt": Settled} {
		tests = append(tests, subtest{"Heir_" + handler, slotted(func(t *testing.T) {
			s := newStorm(t, store, store.Start(t), true)
			s.publish(
				core.NewJob{ID: "a", Group: "g"},
				core.NewJob{ID: "b", Group: "h"},
				core.NewJob{ID: "c"},
			)
			const jobs = 3
			zombie := s.addWorker(workerSpec{Concurrency: 4, Lease: 500 * time.Millisecond, Handler: "zombie"})
			s.history.awaitCount("the worker holds all", 0, jobs, is(Started, zombie.name))
			s.check(zombie.Freeze())
			// Its lease outlasts a slow machine, so that it loses none by itself.
			heir := s.addWorker(workerSpec{Concurrency: 4, Lease: 3 * time.Second, Handler: handler})
			s.history.awaitCount("another worker takes over", 0, jobs, is(kinds, heir.name))
			i := s.history.len()
			s.check(zombie.Thaw())
			ends := s.history.awaitCount("the handlers of the zombie end", i, jobs, func(e Event) bool {
				return e.Kind == Note && e.Text == "end"
			})
			causes, refused := 0, 0
			for _, e := range s.history.since(i) {
				switch {
				case e.Proc == heir.name && e.Kind == Ended:
					t.Errorf("the zombie ended the context of the next holder of job %s: %s", e.Job, e.Err)
				case e.Kind == Ended && e.Err == Lost:
					causes++
				case e.Kind == Note && e.Text != "end":
					refused++
					if e.Err != Lost {
						t.Errorf("%s of job %s by the zombie: %q, want %q", e.Text, e.Job, e.Err, Lost)
					}
				}
			}
			if causes != jobs || refused != jobs*int(core.Cancel+2) {
				t.Errorf("%d contexts ended with a lost lease, %d writes were looked at", causes, refused)
			}
			if handler == "hold" {
				s.wantStillHeld(heir, ends[jobs-1].Done, jobs)
			}
			s.settleDown()
			s.judge()
		})})
	}
	together(t, tests)
}

// wantStillHeld checks that a worker still extends its leases.
func (s *storm) wantStillHeld(holder *process, from int64, n int) {
	s.Helper()
	extended := map[string]bool{}
	s.history.await("the next holder extends its leases", 0, func(e Event) bool {
		if e.Kind == Wrote && e.Proc == holder.name && e.Sent > from {
			if e.Err != "" {
				s.Errorf("extension of job %s by its holder: %s", e.Job, e.Err)
			}
			extended[e.Job] = true
		}
		return len(extended) == n
	})
}
