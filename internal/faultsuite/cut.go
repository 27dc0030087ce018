package faultsuite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// cutPlan says which commands are cut, counted from when an operation begins.
type cutPlan struct {
	// state of the client: warm has an open connection and all that the server
	// needs to know; cold has had its connections cut; fresh has just been opened,
	// on a server that has forgotten what clients prepared.
	state string
	first int  // the first command that is cut
	count int  // how many in a row
	after bool // the reply is lost, else the command
}

func (p cutPlan) String() string {
	what := "commands"
	if p.after {
		what = "replies"
	}
	return fmt.Sprintf("%s client, %s %d to %d lost", p.state, what, p.first, p.first+p.count-1)
}

// cutPlans gives all plans. Six in a row outlast every repetition that a client
// makes by itself.
func cutPlans() []cutPlan {
	var plans []cutPlan
	for _, after := range []bool{false, true} {
		for _, n := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {1, 6}} {
			plans = append(plans, cutPlan{"warm", n[0], n[1], after})
		}
		for n := range 3 {
			plans = append(plans, cutPlan{"cold", n + 1, 1, after}, cutPlan{"fresh", n + 1, 1, after})
		}
	}
	return plans
}

// someCutPlans gives those in which what a client repeats by itself matters.
func someCutPlans() []cutPlan {
	return slices.DeleteFunc(cutPlans(), func(p cutPlan) bool { return p.state != "warm" || p.first > 1 })
}

// cutting is one operation under one plan, in a queue of its own.
type cutting struct {
	*testing.T
	plan   cutPlan
	proxy  *testserver.Proxy
	b      core.Backend // through the proxy
	direct core.Backend
	ctx    context.Context
	queue  string
	cuts   []*testserver.Cut
}

// The connection is cut before and after the n-th command of each operation.
// Afterwards its caller tries again until there is an answer, as a program would.
func testConnectionCut(t *testing.T, store Store) {
	server := store.Start(t)
	direct := open(t, store.Open, server.URL())
	var tests []subtest
	add := func(name string, opener Opener, plans []cutPlan, run func(*cutting)) {
		tests = append(tests, subtest{name, slotted(func(t *testing.T) {
			testCuts(t, store, server, opener, direct, plans, run)
		})})
	}
	for op, run := range cutOperations {
		add(op, store.Open, cutPlans(), run)
		for name, opener := range store.Clients {
			add(op+name, opener, someCutPlans(), run)
		}
	}
	together(t, tests)
}

func testCuts(t *testing.T, store Store, server Server, opener Opener, direct core.Backend, plans []cutPlan, run func(*cutting)) {
	proxy := testserver.NewProxy(t, server.Addr(), store.Split)
	url := via(t, server.URL(), proxy)
	b := open(t, opener, url)
	fired := map[bool]int{}
	for i, plan := range plans {
		c := &cutting{T: t, plan: plan, proxy: proxy, b: b, direct: direct, queue: fmt.Sprintf("%s-%d", testserver.UniqueName(t), i)}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		c.ctx = ctx
		c.check(direct.Configure(ctx, c.queue, core.QueueConfig{CompletedRetention: time.Hour}))
		switch plan.state {
		case "cold":
			proxy.CutAll()
		case "fresh":
			if store.Forget != nil {
				c.check(store.Forget(ctx, server.URL()))
			}
			c.b = open(t, opener, url)
		}
		run(c)
		n := c.fired()
		fired[plan.after] += n
		if n == 0 && plan.first == 1 {
			t.Errorf("nothing was cut")
		}
		cancel()
		if t.Failed() {
			t.Fatalf("with %v", plan)
		}
	}
	t.Logf("%d commands and %d replies were lost", fired[false], fired[true])
}

func (c *cutting) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%v: %v", c.plan, err)
	}
}

// equal fails the test unless got is want.
func equal[V comparable](c *cutting, what string, got, want V) {
	c.Helper()
	if got != want {
		c.Errorf("%v: %s: got %v, want %v", c.plan, what, got, want)
	}
}

// fired counts the cuts that have happened.
func (c *cutting) fired() int {
	n := 0
	for _, cut := range c.cuts {
		if cut.Fired() {
			n++
		}
	}
	return n
}

// insist carries out an operation with cuts, again and again until it is
// answered, and gives how often it was not. An error must say that it is unknown
// what happened.
func (c *cutting) insist(do func(context.Context) error) int {
	c.Helper()
	for i := range c.plan.count {
		if c.plan.after {
			c.cuts = append(c.cuts, c.proxy.CutAfter(c.plan.first+i))
		} else {
			c.cuts = append(c.cuts, c.proxy.CutBefore(c.plan.first+i))
		}
	}
	defer c.proxy.Clear()
	for failed := 0; ; failed++ {
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		err := do(ctx)
		cancel()
		if err == nil {
			return failed
		}
		if !errors.Is(err, core.ErrUnavailable) {
			c.Errorf("%v: the error is not ErrUnavailable: %v", c.plan, err)
		}
		if failed == 10 {
			c.Fatalf("%v: still not answered: %v", c.plan, err)
		}
	}
}

func (c *cutting) publish(jobs ...core.NewJob) {
	c.Helper()
	for i := range jobs {
		jobs[i].Queue = c.queue
	}
	res, err := c.direct.Publish(c.ctx, core.PublishRequest{Jobs: jobs})
	c.check(err)
	for _, r := range res {
		c.check(r.Err)
	}
}

func (c *cutting) claim(lease time.Duration) []core.Lease {
	c.Helper()
	res, err := c.direct.Claim(c.ctx, core.ClaimRequest{Queue: c.queue, Max: 20, Lease: lease, Owner: "direct"})
	c.check(err)
	return res.Leases
}

func (c *cutting) settle(action core.Action, leases ...core.Lease) {
	c.Helper()
	outcomes := make([]core.Outcome, len(leases))
	for i, l := range leases {
		outcomes[i] = core.Outcome{Lease: l.LeaseRef, Action: action}
	}
	res, err := c.direct.Settle(c.ctx, c.queue, outcomes)
	c.check(err)
	for _, r := range res {
		c.check(r.Err)
	}
}

func (c *cutting) job(id string) *core.Job {
	c.Helper()
	job, err := c.direct.Job(c.ctx, c.queue, id)
	c.check(err)
	return job
}

// ids gives the ids of the jobs in a state, sorted.
func (c *cutting) ids(state core.State) []string {
	c.Helper()
	page, err := c.direct.Jobs(c.ctx, core.JobFilter{Queue: c.queue, State: state, Limit: core.MaxPage})
	c.check(err)
	var ids []string
	for _, job := range page.Jobs {
		ids = append(ids, job.ID)
	}
	slices.Sort(ids)
	return ids
}

// totals gives the statistics and checks that the queue counts the same
// jobs as it lists.
func (c *cutting) totals() core.DayStats {
	c.Helper()
	info, err := c.direct.QueueInfo(c.ctx, c.queue)
	c.check(err)
	for _, state := range core.JobStates() {
		equal(c, "count of jobs "+state.String(), info.Jobs[state], int64(len(c.ids(state))))
	}
	days, err := c.direct.Stats(c.ctx, c.queue, 2)
	c.check(err)
	var sum core.DayStats
	for _, d := range days { // midnight may have passed
		sum.Completed += d.Completed
		sum.Failed += d.Failed
		sum.Dead += d.Dead
		sum.Cancelled += d.Cancelled
	}
	return sum
}
