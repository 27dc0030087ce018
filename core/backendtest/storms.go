package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

// storms are the storms of RunStorms. They run one after the other, so that each
// has the machine for itself.
var storms = []struct {
	name string
	run  func(s *storm)
}{
	{"P4_PublishMeetsDrain", stormDrain},
	{"P3_Zombies", stormZombies},
	{"P1_P2_RandomOutcomes", stormOutcomes},
	{"P2_ManyHandles", stormHandles},
	{"P6_FloodingGroup", stormFlood},
	{"P6_StreamOfNewGroups", stormNewGroups},
	{"P5_PoisonJobs", stormPoison},
	{"P8_BlockedOldestGroup", stormBlocked},
}

// RunStorms lets many publishers and workers loose on the store and checks with
// a [Checker] that nothing was lost, doubled, overtaken or overlapped. A storm
// takes a few seconds.
func RunStorms(t *testing.T, h Harness) {
	for _, st := range storms {
		t.Run(st.name, func(t *testing.T) {
			s := &storm{fixture: newFixtureFor(t, h, stormTimeout), checker: NewChecker()}
			st.run(s)
			s.verdict()
		})
	}
}

// storm is a queue, a ledger, and who works on it.
type storm struct {
	*fixture
	checker *Checker

	wg      sync.WaitGroup
	working context.Context // ends when the workers shall
	stop    context.CancelFunc
	mu      sync.Mutex
	errs    []error
}

// client is a handle of its own whose calls go into the ledger.
func (s *storm) client() core.Backend {
	s.Helper()
	return s.checker.Watch(s.open())
}

// clients are n of them.
func (s *storm) clients(n int) []core.Backend {
	s.Helper()
	list := make([]core.Backend, n)
	for i := range list {
		list[i] = s.client()
	}
	return list
}

// failed notes an error of a goroutine.
func (s *storm) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// handler decides how a lease ends. Without ok it is left to run out.
type handler func(ctx context.Context, l core.Lease) (o core.Outcome, ok bool)

// worker claims and settles until the storm is over.
type worker struct {
	b      core.Backend
	max    int // groups of one claim; 0 means 1
	lease  time.Duration
	floor  int
	handle handler // nil completes all
}

// pollEvery is how long a worker sleeps that found nothing.
const pollEvery = 2 * time.Millisecond

// work starts workers; drain ends them.
func (s *storm) work(workers ...worker) {
	s.working, s.stop = context.WithCancel(s.ctx)
	s.Cleanup(s.stop)
	for i, w := range workers {
		s.wg.Go(func() {
			if err := s.loop(s.working, fmt.Sprint("worker-", i), w); err != nil {
				s.failed(fmt.Errorf("worker %d: %w", i, err))
			}
		})
	}
}

func (s *storm) loop(ctx context.Context, name string, w worker) error {
	lease := w.lease
	if lease == 0 {
		lease = hour
	}
	for ctx.Err() == nil {
		// Calls use the storm's context: none is cut in the middle.
		res, err := w.b.Claim(s.ctx, core.ClaimRequest{
			Queue: s.queue, Max: max(w.max, 1), Lease: lease, MinPriority: w.floor, Owner: name,
		})
		if err != nil {
			return err
		}
		if len(res.Leases) == 0 {
			pause(ctx, pollEvery)
			continue
		}
		var outcomes []core.Outcome
		for _, l := range res.Leases {
			o, ok := core.Outcome{Action: core.Complete}, true
			if w.handle != nil {
				o, ok = w.handle(ctx, l)
			}
			if ok {
				o.Lease = l.LeaseRef
				outcomes = append(outcomes, o)
			}
		}
		results, err := w.b.Settle(s.ctx, s.queue, outcomes)
		if err != nil {
			return err
		}
		for _, r := range results {
			if r.Err != nil && !errors.Is(r.Err, core.ErrLeaseLost) {
				return r.Err
			}
		}
	}
	return nil
}

// pause sleeps, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// publishers run n functions at once, each with a client of its own, and wait
// for them.
func (s *storm) publishers(n int, publish func(i int, b core.Backend) error) {
	clients := s.clients(n)
	s.together(n, func(i int) error { return publish(i, clients[i]) })
}

// one publishes a job.
func (s *storm) one(b core.Backend, job core.NewJob) error {
	job.Queue = s.queue
	_, err := core.Publish(s.ctx, b, job)
	return err
}

// drain waits until no job is unfinished, and ends the workers. What is still
// there when nothing has been done for the storm's patience is left to the verdict:
// how long the whole takes is the machine's affair.
func (s *storm) drain() {
	s.Helper()
	done, deadline := -1, time.Time{}
	for s.ctx.Err() == nil {
		if n := s.checker.Done(); n != done {
			done, deadline = n, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			break
		}
		left := int64(0)
		for state, n := range s.info().Jobs {
			if !state.Finished() {
				left += n
			}
		}
		if left == 0 || s.broken() {
			break
		}
		pause(s.ctx, 5*time.Millisecond)
	}
	s.stop()
	s.wg.Wait()
}

func (s *storm) broken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.errs) > 0
}

// verdict fails the test for each error and each violation.
func (s *storm) verdict() {
	s.Helper()
	if s.stop != nil {
		s.stop()
		s.wg.Wait()
	}
	s.check(errors.Join(s.errs...))
	found, err := s.checker.Check(s.ctx, s.b)
	s.check(err)
	for i, v := range found {
		if i == 20 {
			s.Fatalf("and %d more", len(found)-i)
		}
		s.Error(v)
	}
	s.Logf("%d jobs were published, %d leases given, %d settles refused", len(s.checker.jobs), len(s.checker.leases), s.checker.Refused())
}

// jitter is a random time up to d.
func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }

// shuffled calls each function, in a random order.
func shuffled(do ...func()) {
	rand.Shuffle(len(do), func(i, j int) { do[i], do[j] = do[j], do[i] })
	for _, f := range do {
		f()
	}
}
