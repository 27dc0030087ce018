package backendtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// stormFlood has a group with thousands of jobs in front of 99 groups with two
// each: the small ones are served within about two rounds.
func stormFlood(s *storm) {
	b := s.client()
	n := s.h.scale(5000)
	flood := make([]core.NewJob, n)
	for i := range flood {
		flood[i] = core.NewJob{Queue: s.queue, Group: "flood"}
	}
	_, err := b.Publish(s.ctx, core.PublishRequest{Jobs: flood})
	s.check(err)
	serve := func() core.Lease {
		s.Helper()
		res, err := b.Claim(s.ctx, core.ClaimRequest{Queue: s.queue, Max: 1, Lease: hour})
		s.check(err)
		equal(s.fixture, "leases", len(res.Leases), 1)
		l := res.Leases[0]
		settled, err := b.Settle(s.ctx, s.queue, []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete}})
		s.check(err)
		s.check(settled[0].Err)
		return l
	}
	for range 20 {
		serve() // the flood has the queue for itself
	}
	const groups, each = 99, 2
	for i := range groups * each {
		s.check(s.one(b, core.NewJob{Group: fmt.Sprint("small", i%groups)}))
	}
	floods := 0
	for small := 0; small < groups*each; {
		if strings.HasPrefix(serve().Group, "small") {
			small++
		} else {
			floods++
		}
	}
	if floods > each {
		s.Errorf("the flooding group was served %d times while the others waited for %d turns each", floods, each)
	}
	// The rest is served by many at once.
	var workers []worker
	for _, b := range s.clients(4) {
		workers = append(workers, worker{b: b, max: 2})
	}
	s.work(workers...)
	s.wait(func() bool { return s.checker.Done() >= 20+groups*each+100 })
	s.check(s.b.ActOnGroup(s.ctx, s.queue, "flood", core.PauseGroup))
	s.stop()
	s.wg.Wait()
	s.checker.leave("flood") // most of it is still there, and may be
}

// wait waits for a condition, or for an error of somebody.
func (s *storm) wait(condition func() bool) {
	s.Helper()
	s.eventually("what the storm waits for", func() bool { return condition() || s.broken() })
}

// stormNewGroups publishes a new group for each job that is served: an old
// backlog still advances, for no group waits more than the head start longer
// than its turn.
func stormNewGroups(s *storm) {
	const headStart = 50 * time.Millisecond
	const old, each = 20, 4
	s.configure(core.QueueConfig{HeadStart: headStart})
	b := s.client()
	for i := range old * each {
		s.check(s.one(b, core.NewJob{Group: fmt.Sprint("old", i%old), ID: fmt.Sprint("old", i)}))
	}
	stream := 0
	served := 0
	deadline := time.Now().Add(patience)
	for served < old*each {
		if time.Now().After(deadline) {
			s.Fatalf("%d of %d old jobs were served in %s, beside %d new groups", served, old*each, patience, stream)
		}
		s.check(s.one(b, core.NewJob{Group: fmt.Sprint("new", stream)}))
		stream++
		res, err := b.Claim(s.ctx, core.ClaimRequest{Queue: s.queue, Max: 1, Lease: hour})
		s.check(err)
		equal(s.fixture, "leases", len(res.Leases), 1)
		l := res.Leases[0]
		settled, err := b.Settle(s.ctx, s.queue, []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete}})
		s.check(err)
		s.check(settled[0].Err)
		if strings.HasPrefix(l.Group, "old") {
			served++
		}
	}
	s.work(worker{b: b, max: 100})
	s.drain()
	s.Logf("%d old jobs beside %d new groups", served, stream)
}

// stormPoison has jobs that kill each worker that takes them: they end dead
// after their attempts, and nobody else is hurt.
func stormPoison(s *storm) {
	const poison, attempts, healthy = 5, 3, 100
	handle := func(_ context.Context, l core.Lease) (core.Outcome, bool) {
		return core.Outcome{Action: core.Complete}, l.Job.Kind != "poison"
	}
	var workers []worker
	for _, b := range s.clients(4) {
		workers = append(workers, worker{b: b, max: 2, lease: 150 * time.Millisecond, handle: handle})
	}
	s.work(workers...)
	s.publishers(1, func(_ int, b core.Backend) error {
		for i := range poison {
			group := fmt.Sprint("g", i)
			if i == 0 {
				group = ""
			}
			if err := s.one(b, core.NewJob{Group: group, ID: fmt.Sprint("poison", i), Kind: "poison", MaxAttempts: attempts}); err != nil {
				return err
			}
		}
		for i := range healthy {
			if err := s.one(b, core.NewJob{Group: fmt.Sprint("g", i%10), ID: fmt.Sprint("healthy", i), MaxAttempts: core.Unlimited}); err != nil {
				return err
			}
		}
		return nil
	})
	s.drain()
	for i := range poison {
		job := s.job(fmt.Sprint("poison", i))
		equal(s.fixture, "state", job.State, core.StateDead)
		equal(s.fixture, "attempts", job.Attempt, attempts)
		equal(s.fixture, "failures", len(job.Failures), attempts)
	}
	equal(s.fixture, "jobs done", s.checker.Done(), healthy)
}

// stormBlocked blocks the groups that have waited longest, in every way, and
// goes on publishing into them: all others are served as if they were not there.
func stormBlocked(s *storm) {
	s.configure(core.QueueConfig{HeadStart: core.None})
	b := s.client()
	blocked := []string{"leased", "parked", "paused", "held", "strict"}
	for _, g := range blocked {
		job := core.NewJob{Group: g, ID: g}
		if g == "strict" {
			job.Delay, job.Scheduling = hour, core.Strict
		}
		s.check(s.one(b, job))
	}
	s.act("paused", core.PauseGroup)
	s.act("held", core.HoldGroup)
	leases := map[string]core.Lease{}
	for range 2 {
		res, err := b.Claim(s.ctx, core.ClaimRequest{Queue: s.queue, Max: 1, Lease: hour})
		s.check(err)
		equal(s.fixture, "leases", len(res.Leases), 1)
		leases[res.Leases[0].JobID] = res.Leases[0]
	}
	parked := core.Outcome{Lease: leases["parked"].LeaseRef, Action: core.Retry, Delay: hour}
	settled, err := b.Settle(s.ctx, s.queue, []core.Outcome{parked})
	s.check(err)
	s.check(settled[0].Err)

	const groups = 50
	jobs := s.h.scale(500)
	var workers []worker
	for _, w := range s.clients(4) {
		workers = append(workers, worker{b: w, max: 4, handle: func(_ context.Context, l core.Lease) (core.Outcome, bool) {
			if l.Group[0] != 'f' {
				s.failed(fmt.Errorf("job %q of the blocked group %q was handed out", l.JobID, l.Group))
			}
			return core.Outcome{Action: core.Complete}, true
		}})
	}
	s.work(workers...)
	s.publishers(2, func(p int, b core.Backend) error {
		for i := range jobs {
			if err := s.one(b, core.NewJob{Group: fmt.Sprint("free", i%groups)}); err != nil {
				return err
			}
			if i%5 == 0 {
				if err := s.one(b, core.NewJob{Group: blocked[i/5%len(blocked)], Priority: core.MaxPriority}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	s.wait(func() bool { return s.checker.Done() >= 2*jobs })
	equal(s.fixture, "jobs done", s.checker.Done(), 2*jobs)
	s.stop()
	s.wg.Wait()
	for _, g := range blocked {
		s.checker.leave(g) // they wait, as they should
	}
}

// leave says that jobs of a group are left unfinished on purpose.
func (c *Checker) leave(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, job := range c.jobs {
		if job.group == group {
			job.left = true
		}
	}
}
