package faultsuite

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// A claim whose answer is lost costs no more than the time of its lease.
func cutClaim(c *cutting) {
	const lease = 200 * time.Millisecond
	c.publish(
		core.NewJob{ID: "a", Group: "g"}, core.NewJob{ID: "b", Group: "g"},
		core.NewJob{ID: "c", Group: "h"}, core.NewJob{ID: "d"},
	)
	var first core.ClaimResult
	failed := c.insist(func(ctx context.Context) (err error) {
		first, err = c.b.Claim(ctx, core.ClaimRequest{Queue: c.queue, Max: 20, Lease: lease, Owner: "cut"})
		return err
	})
	answered := time.Now()
	if failed == 0 {
		equal(c, "leases", len(first.Leases), 3)
	}
	c.settle(core.Complete, first.Leases...)
	completed := first.Leases
	for len(completed) < 4 {
		leases := c.claim(time.Hour)
		c.settle(core.Complete, leases...)
		completed = append(completed, leases...)
		if time.Since(answered) > patience {
			c.Fatalf("%v: only %d jobs can be claimed after %d failed claims", c.plan, len(completed), failed)
		}
	}
	if took := time.Since(answered); took > lease+2*time.Second {
		c.Errorf("%v: it took %v until the jobs of a lost claim came back, with a lease of %v", c.plan, took, lease)
	}
	place := map[string]int{}
	for i, l := range completed {
		if _, again := place[l.JobID]; again {
			c.Errorf("%v: job %s was handed out again after its end", c.plan, l.JobID)
		}
		place[l.JobID] = i
		job := c.job(l.JobID)
		if job.State != core.StateCompleted || job.Attempt > 1+failed || len(job.Failures) != job.Attempt-1 {
			c.Errorf("%v: job %s is %s, with %d attempts and %d failures after %d failed claims",
				c.plan, job.ID, job.State, job.Attempt, len(job.Failures), failed)
		}
	}
	if place["a"] > place["b"] {
		c.Errorf("%v: job b was handed out before job a", c.plan)
	}
	equal(c, "completed", c.totals().Completed, 4)
}

// A settle that is made again answers what the store then shows, and takes effect
// once.
func cutSettle(c *cutting) {
	ends := []struct {
		outcome  core.Outcome
		state    core.State
		attempt  int
		failures int
	}{
		{core.Outcome{Action: core.Complete}, core.StateCompleted, 1, 0},
		{core.Outcome{Action: core.Retry, Delay: time.Hour, Error: "planned"}, core.StateRetrying, 1, 1},
		{core.Outcome{Action: core.Retry, Error: "planned"}, core.StatePending, 1, 1},
		{core.Outcome{Action: core.Release}, core.StatePending, 0, 0},
		{core.Outcome{Action: core.Snooze, Delay: time.Hour}, core.StateScheduled, 0, 0},
		{core.Outcome{Action: core.Dead, Error: "planned"}, core.StateDead, 1, 1},
		{core.Outcome{Action: core.Cancel}, core.StateCancelled, 1, 0},
	}
	for i := range ends {
		c.publish(core.NewJob{ID: fmt.Sprint("j", i), Group: fmt.Sprint("g", i)})
	}
	outcomes := make([]core.Outcome, len(ends))
	for i, l := range c.claim(time.Hour) {
		equal(c, "job", l.JobID, fmt.Sprint("j", i))
		outcomes[i] = ends[i].outcome
		outcomes[i].Lease = l.LeaseRef
	}
	var results []core.SettleResult
	failed := c.insist(func(ctx context.Context) (err error) {
		results, err = c.b.Settle(ctx, c.queue, outcomes)
		return err
	})
	again, err := c.direct.Settle(c.ctx, c.queue, outcomes)
	c.check(err)
	for i, end := range ends {
		what := end.outcome.Action.String()
		r := results[i]
		switch {
		case r.Err == nil:
			equal(c, "state answered by "+what, r.State, end.state)
		case failed == 0 || !isLost(r.Err):
			c.Errorf("%v: %s after %d failed calls: %v", c.plan, what, failed, r.Err)
		}
		if !isLost(again[i].Err) {
			c.Errorf("%v: a second %s was accepted: %+v", c.plan, what, again[i])
		}
		job := c.job(fmt.Sprint("j", i))
		equal(c, "state after "+what, job.State, end.state)
		equal(c, "attempt after "+what, job.Attempt, end.attempt)
		equal(c, "failures after "+what, len(job.Failures), end.failures)
	}
	equal(c, "statistics", c.totals(), core.DayStats{Completed: 1, Failed: 3, Dead: 1, Cancelled: 1})
}

// An extension that is made again holds from then on.
func cutExtend(c *cutting) {
	c.publish(core.NewJob{ID: "a", Group: "g"}, core.NewJob{ID: "b"})
	var refs []core.LeaseRef
	for _, l := range c.claim(time.Minute) {
		refs = append(refs, l.LeaseRef)
	}
	equal(c, "leases", len(refs), 2)
	from, err := c.direct.Now(c.ctx)
	c.check(err)
	var extended []core.Extension
	c.insist(func(ctx context.Context) (err error) {
		extended, err = c.b.Extend(ctx, c.queue, refs, time.Hour)
		return err
	})
	for i, ext := range extended {
		c.check(ext.Err)
		until := c.job(refs[i].JobID).Lease.Until
		equal(c, "end of the lease", until.UnixMicro(), ext.Until.UnixMicro())
		if until.Before(from.Add(time.Hour)) {
			c.Errorf("%v: the lease ends %v after the extension by an hour began", c.plan, until.Sub(from))
		}
	}
	equal(c, "jobs that can be claimed", len(c.claim(time.Hour)), 0)
}

// A save that is made again is there, and the lease goes on.
func cutSave(c *cutting) {
	c.publish(core.NewJob{ID: "a", Group: "g"}, core.NewJob{ID: "b"})
	for _, l := range c.claim(time.Hour) {
		c.insist(func(ctx context.Context) error {
			return c.b.Save(ctx, l.LeaseRef, core.Patch{Result: []byte("half of " + l.JobID), SetHeaders: map[string]string{"k": "v"}})
		})
		job := c.job(l.JobID)
		equal(c, "progress", string(job.Result), "half of "+l.JobID)
		equal(c, "header", job.Headers["k"], "v")
		equal(c, "state", job.State, core.StateRunning)
		c.settle(core.Complete, l)
	}
}
