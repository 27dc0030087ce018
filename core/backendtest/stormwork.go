package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
)

// stormDrain lets publishers and claimers meet again and again at groups that
// are empty or about to be.
func stormDrain(s *storm) {
	const groups, publishers = 3, 4
	jobs := s.h.scale(1000)
	var workers []worker
	for i, b := range s.clients(4) {
		workers = append(workers, worker{b: b, max: 1 + i})
	}
	s.work(workers...)
	s.publishers(publishers, func(p int, b core.Backend) error {
		for i := range jobs {
			job := core.NewJob{Group: fmt.Sprint("g", rand.IntN(groups)), ID: fmt.Sprintf("p%d-%05d", p, i)}
			if err := s.one(b, job); err != nil {
				return err
			}
			if i%2 == 0 {
				pause(s.ctx, jitter(300*time.Microsecond)) // about as long as a drain takes
			}
		}
		return nil
	})
	s.drain()
	equal(s.fixture, "jobs done", s.checker.Done(), publishers*jobs)
}

// stormZombies has holders that fall silent until somebody took their group and
// then settle, extend and save as if nothing had happened.
func stormZombies(s *storm) {
	const lease = 60 * time.Millisecond
	const groups, zombies = 8, 5
	jobs := s.h.scale(500)
	healthy := func(ctx context.Context, _ core.Lease) (core.Outcome, bool) {
		pause(ctx, 2*pollEvery)
		return core.Outcome{Action: core.Complete}, true
	}
	zombie := func(b core.Backend) handler {
		return func(ctx context.Context, l core.Lease) (core.Outcome, bool) {
			o := core.Outcome{Action: core.Complete}
			if rand.IntN(2) > 0 {
				return o, true
			}
			s.awaitTakeOver(ctx, b, l)
			// These go into the ledger, which knows whether they may be accepted.
			shuffled(func() {
				if _, err := b.Extend(s.ctx, s.queue, []core.LeaseRef{l.LeaseRef}, lease); err != nil {
					s.failed(err)
				}
			}, func() {
				if err := b.Save(s.ctx, l.LeaseRef, core.Patch{Result: []byte("zombie")}); err != nil && !errors.Is(err, core.ErrLeaseLost) {
					s.failed(err)
				}
			})
			o.Action = core.Complete + core.Action(rand.IntN(int(core.Cancel)))
			o.Error = "zombie"
			return o, true
		}
	}
	var workers []worker
	for i, b := range s.clients(6) {
		w := worker{b: b, lease: lease, handle: healthy}
		if i%2 == 0 {
			w.handle = zombie(b)
		}
		workers = append(workers, w)
	}
	s.publishers(2, func(p int, b core.Backend) error {
		for i := range jobs / 2 {
			job := core.NewJob{
				Group: fmt.Sprint("g", i%groups), ID: fmt.Sprintf("p%d-%05d", p, i),
				MaxAttempts: core.Unlimited, OnFailure: core.Block,
			}
			if err := s.one(b, job); err != nil {
				return err
			}
		}
		return nil
	})
	s.work(workers...)
	s.drain()
	if n := s.checker.Refused(); n < zombies {
		s.Errorf("%d zombies were refused, want %d at least: the storm shows too little", n, zombies)
	}
}

// awaitTakeOver waits until the lease has run out and somebody else has the job,
// has ended it, or does not come.
func (s *storm) awaitTakeOver(ctx context.Context, b core.Backend, l core.Lease) {
	deadline := time.Now().Add(time.Second)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		job, err := b.Job(s.ctx, s.queue, l.JobID)
		if errors.Is(err, core.ErrNotFound) {
			return
		}
		if err != nil {
			s.failed(err)
			return
		}
		if job.Lease == nil || job.Lease.Fence != l.Fence {
			return
		}
		pause(ctx, pollEvery)
	}
}

// stormOutcomes ends leases in every way there is, with every policy, and a
// person who releases what is held.
func stormOutcomes(s *storm) {
	const groups = 10
	jobs := s.h.scale(1200)
	var expired atomic.Int64
	handle := func(ctx context.Context, l core.Lease) (core.Outcome, bool) {
		o := core.Outcome{Error: "storm"}
		switch n := rand.IntN(20); {
		case n < 9:
			o.Action = core.Complete
		case n < 13:
			o.Action, o.Delay = core.Retry, jitter(5*time.Millisecond)
		case n < 15:
			o.Action = core.Release
		case n < 17:
			o.Action, o.Delay = core.Snooze, jitter(5*time.Millisecond)
		case n < 18:
			o.Action = core.Dead
		case n < 19:
			o.Action = core.Cancel
		default:
			o.Action = core.Complete
			return o, expired.Add(1) > 40 // some are left to run out
		}
		return o, true
	}
	var workers []worker
	for _, b := range s.clients(4) {
		workers = append(workers, worker{b: b, max: 3, lease: 100 * time.Millisecond, handle: handle})
	}
	s.work(workers...)
	s.wg.Go(s.releaseHolds)
	s.publishers(3, func(p int, b core.Backend) error {
		for i := range jobs / 3 {
			job := core.NewJob{
				ID: fmt.Sprintf("p%d-%05d", p, i), Group: fmt.Sprint("g", rand.IntN(groups)),
				MaxAttempts: 1 + rand.IntN(5), Priority: rand.IntN(core.MaxPriority + 1),
				OnFailure: core.Block, OnExhausted: core.DeadLetter + core.ExhaustedPolicy(rand.IntN(2)),
			}
			if rand.IntN(4) == 0 {
				job.OnFailure = core.Skip
			}
			if rand.IntN(8) == 0 {
				job.Group = ""
			}
			if rand.IntN(8) == 0 {
				job.Delay = jitter(10 * time.Millisecond)
			}
			if err := s.one(b, job); err != nil {
				return err
			}
		}
		return nil
	})
	s.drain()
}

// releaseHolds is a person who releases each group that is held.
func (s *storm) releaseHolds() {
	for s.ctx.Err() == nil {
		groups, err := listGroups(s.ctx, s.b, core.GroupFilter{Queue: s.queue})
		if err != nil && !errors.Is(err, core.ErrNotFound) {
			if s.ctx.Err() == nil {
				s.failed(err)
			}
			return
		}
		for _, g := range groups {
			if !g.Held {
				continue
			}
			if err := s.b.ActOnGroup(s.ctx, s.queue, g.Group, core.ReleaseGroup); err != nil && !errors.Is(err, core.ErrNotFound) {
				s.failed(err)
			}
		}
		if s.working.Err() != nil {
			return
		}
		pause(s.ctx, 5*time.Millisecond)
	}
}

// stormHandles has as many clients as a small cluster, all on a few groups.
func stormHandles(s *storm) {
	const handles, groups = 12, 6
	jobs := s.h.scale(200)
	clients := s.clients(handles)
	var workers []worker
	for i, b := range clients {
		workers = append(workers, worker{b: b, max: 1 + i%4})
	}
	s.work(workers...)
	s.together(handles, func(p int) error {
		var batch []core.NewJob
		for i := range jobs {
			batch = append(batch, core.NewJob{Queue: s.queue, Group: fmt.Sprint("g", (p+i)%groups), ID: fmt.Sprintf("p%02d-%05d", p, i)})
			if len(batch) < 1+i%5 && i < jobs-1 {
				continue
			}
			results, err := clients[p].Publish(s.ctx, core.PublishRequest{Jobs: batch})
			if err != nil {
				return err
			}
			for _, res := range results {
				if res.Err != nil {
					return res.Err
				}
			}
			batch = nil
		}
		return nil
	})
	s.drain()
	equal(s.fixture, "jobs done", s.checker.Done(), handles*jobs)
}
