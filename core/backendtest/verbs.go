package backendtest

import (
	"time"

	"github.com/rota-queue/rota/core"
)

// The verbs of the tests: what a publisher, a worker or a person does, each in
// one short call that fails the test when it does not go as it must.

// configure sets the queue's configuration.
func (f *fixture) configure(cfg core.QueueConfig) {
	f.Helper()
	f.check(f.b.Configure(f.ctx, f.queue, cfg))
}

// tryPublish publishes a batch into the fixture's queue unless a job says
// otherwise; refused jobs have their error in their result.
func (f *fixture) tryPublish(jobs ...core.NewJob) []core.PublishResult {
	f.Helper()
	return f.tryRequest(core.PublishRequest{Jobs: jobs})
}

func (f *fixture) tryRequest(req core.PublishRequest) []core.PublishResult {
	f.Helper()
	for i := range req.Jobs {
		if req.Jobs[i].Queue == "" && req.Jobs[i].Topic == "" {
			req.Jobs[i].Queue = f.queue
		}
	}
	results, err := f.b.Publish(f.ctx, req)
	f.check(err)
	equal(f, "number of results", len(results), len(req.Jobs))
	return results
}

// publish publishes a batch of which no job may be refused.
func (f *fixture) publish(jobs ...core.NewJob) []core.PublishResult {
	f.Helper()
	results := f.tryPublish(jobs...)
	for i := range results {
		f.check(results[i].Err)
	}
	return results
}

// put publishes one job.
func (f *fixture) put(job core.NewJob) core.PublishResult {
	f.Helper()
	return f.publish(job)[0]
}

// add publishes jobs with these ids into a group, one after the other.
func (f *fixture) add(group string, ids ...string) {
	f.Helper()
	for _, id := range ids {
		f.put(core.NewJob{Group: group, ID: id})
	}
}

// tryClaim claims with an hour's lease unless the request says otherwise.
func (f *fixture) tryClaim(req core.ClaimRequest) core.ClaimResult {
	f.Helper()
	if req.Queue == "" {
		req.Queue = f.queue
	}
	if req.Lease == 0 {
		req.Lease = hour
	}
	if req.Max == 0 {
		req.Max = 1
	}
	if req.Owner == "" {
		req.Owner = owner
	}
	res, err := f.b.Claim(f.ctx, req)
	f.check(err)
	return res
}

// claimUpTo claims up to n groups at once.
func (f *fixture) claimUpTo(n int) []core.Lease {
	f.Helper()
	return f.tryClaim(core.ClaimRequest{Max: n}).Leases
}

// claim claims one group, whose job must be this one.
func (f *fixture) claim(id string) core.Lease {
	f.Helper()
	leases := f.claimUpTo(1)
	if len(leases) == 0 {
		f.Fatalf("claimed nothing, want %q", id)
	}
	equal(f, "claimed job", leases[0].JobID, id)
	return leases[0]
}

// claimEach claims one group after the other, which must give these jobs.
func (f *fixture) claimEach(ids ...string) []core.Lease {
	f.Helper()
	leases := make([]core.Lease, len(ids))
	for i, id := range ids {
		leases[i] = f.claim(id)
	}
	return leases
}

// claimBatch claims in one call, which must give exactly these jobs in order.
func (f *fixture) claimBatch(ids ...string) []core.Lease {
	f.Helper()
	leases := f.claimUpTo(len(ids) + 1)
	equal(f, "claimed jobs", jobIDs(leases), ids)
	return leases
}

// claimNothing claims, and nothing may be claimable.
func (f *fixture) claimNothing() {
	f.Helper()
	if leases := f.claimUpTo(10); len(leases) > 0 {
		f.Fatalf("claimed %v, want nothing", jobIDs(leases))
	}
}

func jobIDs(leases []core.Lease) []string {
	ids := []string{}
	for _, l := range leases {
		ids = append(ids, l.JobID)
	}
	return ids
}

// trySettle settles one lease.
func (f *fixture) trySettle(l core.Lease, o core.Outcome) core.SettleResult {
	f.Helper()
	o.Lease = l.LeaseRef
	return f.trySettleAll(o)[0]
}

func (f *fixture) trySettleAll(outcomes ...core.Outcome) []core.SettleResult {
	f.Helper()
	results, err := f.b.Settle(f.ctx, f.queue, outcomes)
	f.check(err)
	equal(f, "number of results", len(results), len(outcomes))
	return results
}

// settle settles one lease, which must be live, and tells the job's new state.
func (f *fixture) settle(l core.Lease, o core.Outcome) core.State {
	f.Helper()
	res := f.trySettle(l, o)
	f.check(res.Err)
	return res.State
}

func (f *fixture) complete(leases ...core.Lease) {
	f.Helper()
	for _, l := range leases {
		f.settle(l, core.Outcome{Action: core.Complete})
	}
}

func (f *fixture) retry(l core.Lease, delay time.Duration) core.State {
	f.Helper()
	return f.settle(l, core.Outcome{Action: core.Retry, Delay: delay, Error: "failed"})
}

func (f *fixture) snooze(l core.Lease, delay time.Duration) core.State {
	f.Helper()
	return f.settle(l, core.Outcome{Action: core.Snooze, Delay: delay})
}

func (f *fixture) release(l core.Lease) core.State {
	f.Helper()
	return f.settle(l, core.Outcome{Action: core.Release})
}

func (f *fixture) kill(l core.Lease) core.State {
	f.Helper()
	return f.settle(l, core.Outcome{Action: core.Dead, Error: "no use"})
}

// serve claims and completes one job at a time until nothing is claimable.
func (f *fixture) serve() []string {
	f.Helper()
	ids := []string{}
	for {
		leases := f.claimUpTo(1)
		if len(leases) == 0 {
			return ids
		}
		ids = append(ids, leases[0].JobID)
		f.complete(leases[0])
	}
}

// wantServed serves everything, which must give these jobs in order.
func (f *fixture) wantServed(ids ...string) {
	f.Helper()
	equal(f, "jobs in the order they were served", f.serve(), ids)
}

// extend makes a lease last for d from now.
func (f *fixture) extend(l core.Lease, d time.Duration) core.Extension {
	f.Helper()
	res, err := f.b.Extend(f.ctx, f.queue, []core.LeaseRef{l.LeaseRef}, d)
	f.check(err)
	equal(f, "number of extensions", len(res), 1)
	return res[0]
}

// expire lets leases run out: it shortens them and waits for their end.
func (f *fixture) expire(leases ...core.Lease) {
	f.Helper()
	refs := make([]core.LeaseRef, len(leases))
	for i := range leases {
		refs[i] = leases[i].LeaseRef
	}
	res, err := f.b.Extend(f.ctx, f.queue, refs, core.MinLease)
	f.check(err)
	var last time.Time
	for i := range res {
		f.check(res[i].Err)
		if res[i].Until.After(last) {
			last = res[i].Until
		}
	}
	f.passes(last)
}

// act acts on a group.
func (f *fixture) act(group string, act core.GroupAct) {
	f.Helper()
	f.check(f.b.ActOnGroup(f.ctx, f.queue, group, act))
}

// move moves jobs, none of which may be refused.
func (f *fixture) move(to core.State, ids ...string) {
	f.Helper()
	res := f.tryMove(to, ids...)
	for i := range res.Errs {
		f.check(res.Errs[i])
	}
	equal(f, "moved jobs", res.Moved, len(ids))
}

func (f *fixture) tryMove(to core.State, ids ...string) core.MoveResult {
	f.Helper()
	res, err := f.b.Move(f.ctx, core.MoveRequest{Queue: f.queue, To: to, IDs: ids})
	f.check(err)
	equal(f, "number of errors", len(res.Errs), len(ids))
	return res
}
