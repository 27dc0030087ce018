package backendtest

import (
	"errors"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

var queueTests = []test{
	{"List", testQueues},
	{"MadeByPublishAndConfigure", testQueueMade},
	{"NoSuchQueue", testNoSuchQueue},
	{"Info", testQueueInfo},
	{"Configure", testConfigure},
	{"Delete", testDeleteQueue},
	{"DeleteNotEmpty", testDeleteNotEmpty},
	{"DeletedLeasesAreLost", testDeletedLeases},
	{"DeletedWithEverything", testDeletedWithEverything},
	{"DeleteOneOfFamily", testDeleteOfFamily},
	{"Stats", testStats},
	{"Capabilities", testCapabilities},
}

// mine lists the queues whose names start with a name.
func (f *fixture) mine(start string) []string {
	f.Helper()
	all, err := f.b.Queues(f.ctx)
	f.check(err)
	if !slices.IsSorted(all) {
		f.Error("the queues are not sorted")
	}
	list := []string{}
	for _, q := range all {
		if len(q) >= len(start) && q[:len(start)] == start {
			list = append(list, q)
		}
	}
	return list
}

func testQueues(f *fixture) {
	base := uniqueName()
	want := []string{base + "@a", base + "@b", base + "@c", base + "A", base + "_", base + "b", base + "é"}
	for i := range want { // made in another order
		f.onQueue(want[i*3%len(want)]).put(core.NewJob{})
	}
	equal(f, "queues", f.mine(base), want)
	f.check(f.b.DeleteQueue(f.ctx, base+"@b", true))
	equal(f, "queues", f.mine(base), slices.Delete(want, 1, 2))
}

func testQueueMade(f *fixture) {
	equal(f, "queues", f.mine(f.queue), []string{})
	f.put(core.NewJob{ID: "a"})
	f.complete(f.claim("a"))
	equal(f, "queues, also when empty", f.mine(f.queue), []string{f.queue})
	g := f.otherQueue()
	g.configure(core.QueueConfig{})
	equal(f, "queues", f.mine(g.queue), []string{g.queue})
	equal(f, "jobs", len(g.info().Jobs), 0)
}

// Looking and working does not make a queue. What looks at one that does not
// exist says so.
func testNoSuchQueue(f *fixture) {
	res := f.tryClaim(core.ClaimRequest{Max: 5})
	equal(f, "leases", len(res.Leases), 0)
	equal(f, "next", res.Next, 0)
	n, err := f.b.Purge(f.ctx, f.queue, 10)
	f.check(err)
	equal(f, "purged", n, 0)
	for name, look := range map[string]func() error{
		"QueueInfo": func() error { _, err := f.b.QueueInfo(f.ctx, f.queue); return err },
		"Stats":     func() error { _, err := f.b.Stats(f.ctx, f.queue, 1); return err },
		"Job":       func() error { _, err := f.b.Job(f.ctx, f.queue, "a"); return err },
		"Jobs": func() error {
			_, err := f.b.Jobs(f.ctx, core.JobFilter{Queue: f.queue, State: core.StateDead})
			return err
		},
		"Jobs line":   func() error { _, err := f.b.Jobs(f.ctx, core.JobFilter{Queue: f.queue, Group: "g"}); return err },
		"Group":       func() error { _, err := f.b.Group(f.ctx, f.queue, "g"); return err },
		"Groups":      func() error { _, err := f.b.Groups(f.ctx, core.GroupFilter{Queue: f.queue}); return err },
		"Events":      func() error { _, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue}); return err },
		"PauseQueue":  func() error { _, err := f.b.PauseQueue(f.ctx, f.queue); return err },
		"ResumeQueue": func() error { _, err := f.b.ResumeQueue(f.ctx, f.queue); return err },
		"DeleteQueue": func() error { return f.b.DeleteQueue(f.ctx, f.queue, false) },
		"by force":    func() error { return f.b.DeleteQueue(f.ctx, f.queue, true) },
	} {
		if err := look(); !errors.Is(err, core.ErrNotFound) {
			f.Errorf("%s: got error %v, want ErrNotFound", name, err)
		}
	}
	equal(f, "queues", f.mine(f.queue), []string{})
}

func testQueueInfo(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	from := f.now()
	f.add("g", "completed", "running", "pending", "pending2")
	f.add("h", "retrying")
	f.add("", "dead", "single")
	f.put(core.NewJob{Group: "k", ID: "scheduled", Delay: hour})
	f.put(core.NewJob{Group: "m", ID: "strict", Delay: hour, Scheduling: core.Strict})
	f.complete(f.claim("completed"))
	f.retry(f.claim("retrying"), hour)
	f.kill(f.claim("dead"))
	f.claimEach("single", "running")
	f.add("n", "cancelled")
	f.move(core.StateCancelled, "cancelled")
	f.act("paused", core.PauseGroup)

	info := f.info()
	equal(f, "queue", info.Queue, f.queue)
	equal(f, "paused", info.Paused, false)
	want := map[core.State]int64{
		core.StateScheduled: 2, core.StatePending: 2, core.StateRunning: 2, core.StateRetrying: 1,
		core.StateCompleted: 1, core.StateDead: 1, core.StateCancelled: 1,
	}
	for _, state := range core.JobStates() {
		equal(f, "jobs "+state.String(), info.Jobs[state], want[state])
	}
	equal(f, "groups g, h, m and paused", info.Groups, 4)
	equal(f, "unfinished", info.ByPriority, [5]int64{7, 0, 0, 0, 0})
	equal(f, "oldest pending", clock(info.OldestPending), clock(f.job("pending").CreatedAt))
	f.within("now", info.Now, from, f.now())
	f.move(core.StateGone, "pending", "pending2")
	equal(f, "oldest pending", f.info().OldestPending.IsZero(), true)
}

// Configure replaces the whole configuration, which is told as it was set.
func testConfigure(f *fixture) {
	full := core.QueueConfig{
		HeadStart: 3 * time.Second, OnFailure: core.Skip, OnExhausted: core.Hold, Scheduling: core.Strict,
		MaxAttempts: 4, CompletedRetention: time.Minute, DeadRetention: core.None, CancelledRetention: core.Forever,
		ResultTTL: 2 * time.Minute, EventTTL: time.Second,
	}
	for _, cfg := range []core.QueueConfig{full, {}, {HeadStart: core.Forever, MaxAttempts: core.Unlimited}, {HeadStart: core.None}, full} {
		f.configure(cfg)
		equal(f, "configuration", f.info().Config, cfg)
		equal(f, "configuration seen by others", f.otherHandle().info().Config, cfg)
	}
}

func testDeleteQueue(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	f.add("g", "a")
	f.complete(f.claim("a"))
	f.check(f.b.DeleteQueue(f.ctx, f.queue, false)) // finished jobs do not count
	f.wantState("a", core.StateGone)
	_, err := f.b.QueueInfo(f.ctx, f.queue)
	f.wantErr(err, core.ErrNotFound)
	f.wantErr(f.b.DeleteQueue(f.ctx, f.queue, false), core.ErrNotFound)
	f.add("g", "a") // and from the start
	equal(f, "configuration", f.info().Config, core.QueueConfig{})
	f.wantServed("a")
}

func testDeleteNotEmpty(f *fixture) {
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{})
		err := f.b.DeleteQueue(f.ctx, f.queue, false)
		if state.Finished() {
			f.check(err)
			continue
		}
		f.wantErr(err, core.ErrQueueNotEmpty)
		f.wantState("a", state)
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		f.wantState("a", core.StateGone)
	}
}

func testDeletedLeases(f *fixture) {
	f.add("g", "a")
	f.add("", "u")
	leases := f.claimBatch("a", "u")
	f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
	for _, l := range leases {
		f.wantErr(f.trySettle(l, core.Outcome{Action: core.Complete}).Err, core.ErrLeaseLost)
	}
	f.claimNothing()
	f.add("g", "a")
	f.wantErr(f.trySettle(leases[0], core.Outcome{Action: core.Complete}).Err, core.ErrLeaseLost)
	f.wantServed("a")
}

// Nothing of the old queue shows up in a new one of the same name.
func testDeletedWithEverything(f *fixture) {
	f.configure(core.QueueConfig{
		MaxAttempts: 2, EventTTL: hour, CompletedRetention: hour, OnExhausted: core.Hold, HeadStart: core.None,
	})
	f.add("g", "dead", "a", "b")
	f.put(core.NewJob{Group: "k", ID: "t", Delay: hour, Scheduling: core.Strict, Priority: 4})
	f.kill(f.claim("dead"))
	f.act("paused", core.PauseGroup)
	f.add("", "u", "v")
	f.complete(f.claim("u"))
	f.claim("v")
	f.put(core.NewJob{Group: "h", ID: "s", Delay: core.MinLease})
	f.pauseQueue()
	f.passes(f.job("s").RunAt)
	f.check(f.b.DeleteQueue(f.ctx, f.queue, true))

	equal(f, "dump", f.dump(), (&queueDump{Lines: map[string][]string{}}).String())
	f.claimNothing() // not paused either
	f.put(core.NewJob{Group: "g", ID: "new"})
	info := f.info()
	equal(f, "jobs", info.Jobs[core.StatePending], 1)
	equal(f, "groups", info.Groups, 1)
	equal(f, "configuration", info.Config, core.QueueConfig{})
	equal(f, "counters", f.counted(), core.DayStats{})
	equal(f, "max attempts", f.job("new").MaxAttempts, core.DefaultMaxAttempts)
	page, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue})
	f.check(err)
	equal(f, "events", len(page.Events), 0)
	f.wantNoGroup("paused")
	f.wantServed("new")
}

func testDeleteOfFamily(f *fixture) {
	base := uniqueName()
	a, b, plain := f.onQueue(base+"@a"), f.onQueue(base+"@b"), f.onQueue(base)
	for _, q := range []*fixture{a, b, plain} {
		q.add("g", "j")
	}
	f.check(f.b.DeleteQueue(f.ctx, base, true))
	a.wantServed("j")
	f.check(f.b.DeleteQueue(f.ctx, base+"@a", true))
	b.wantServed("j")
	equal(f, "queues", f.mine(base), []string{base + "@b"})
}

func testStats(f *fixture) {
	f.add("", "a")
	f.complete(f.claim("a"))
	for _, days := range []int{1, 2, 7, core.StatsDays} {
		stats, err := f.b.Stats(f.ctx, f.queue, days)
		f.check(err)
		equal(f, "days", len(stats), days)
		for i, d := range stats {
			if d.Day.UTC() != d.Day.UTC().Truncate(24*time.Hour) {
				f.Errorf("day %s is not midnight UTC", clock(d.Day))
			}
			if i > 0 {
				equal(f, "day", clock(d.Day), clock(stats[i-1].Day.Add(24*time.Hour)))
			}
		}
		today := stats[days-1].Day
		f.within("today", f.now(), today, today.Add(24*time.Hour+time.Minute))
	}
	equal(f, "counters", f.counted(), core.DayStats{Completed: 1})
	for _, days := range []int{0, -1, core.StatsDays + 1} {
		if _, err := f.b.Stats(f.ctx, f.queue, days); !errors.Is(err, core.ErrInvalid) {
			f.Errorf("%d days: got error %v, want ErrInvalid", days, err)
		}
	}
}

func testCapabilities(f *fixture) {
	caps := f.b.Capabilities()
	if caps.Name == "" {
		f.Error("the backend has no name")
	}
	f.add("g", "a")
	equal(f, "capabilities", f.b.Capabilities(), caps)
	equal(f, "capabilities of another handle", f.open().Capabilities(), caps)
}
