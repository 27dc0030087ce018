package backendtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

var listingTests = []test{
	{"OrderOfEachState", testListOrder},
	{"LineOfGroup", testListLine},
	{"Pages", testListPages},
	{"Newest", testListNewest},
	{"ByKind", testListKind},
	{"ByGroup", testListGroup},
	{"ManyTies", testListTies},
	{"WhileJobsMove", testListWhileMoving},
	{"WhileOthersWork", testListWhileWorking},
	{"LookingChangesNothing", testLookingChangesNothing},
}

// testListOrder checks the order of each state: scheduled and retrying by run
// time, pending by place, running by claim time, final states by finish time.
func testListOrder(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	check := func(state core.State, want ...string) {
		f.Helper()
		equal(f, state.String(), f.ids(core.JobFilter{State: state}), want)
		slices.Reverse(want)
		equal(f, state.String()+" newest first", f.ids(core.JobFilter{State: state, Newest: true}), want)
	}
	f.publish(
		core.NewJob{ID: "s3", Delay: 3 * hour}, core.NewJob{Group: "x", ID: "s1", Delay: hour},
		core.NewJob{Group: "y", ID: "s2", Delay: 2 * hour, Scheduling: core.Strict},
	)
	check(core.StateScheduled, "s1", "s2", "s3")

	f.add("g", "p1", "p2")
	f.add("", "p3")
	f.add("h", "p4")
	f.add("g", "p5")
	check(core.StatePending, "p1", "p2", "p3", "p4", "p5")

	leases := f.claimEach("p1", "p4", "p3")
	check(core.StateRunning, "p1", "p4", "p3")
	f.retry(leases[2], 2*hour)
	f.retry(leases[1], hour)
	check(core.StateRetrying, "p4", "p3")
	f.move(core.StatePending, "p4") // to its old place
	check(core.StatePending, "p2", "p4", "p5")
	f.release(leases[0])
	check(core.StatePending, "p1", "p2", "p4", "p5")

	for _, end := range []struct {
		action core.Action
		state  core.State
	}{{core.Complete, core.StateCompleted}, {core.Dead, core.StateDead}, {core.Cancel, core.StateCancelled}} {
		prefix := end.action.String()
		for i := range 3 {
			f.put(core.NewJob{Group: fmt.Sprint(prefix, i), ID: fmt.Sprint(prefix, i), Priority: 4})
		}
		ended := f.claimUpTo(3)
		for _, i := range []int{1, 2, 0} {
			f.settle(ended[i], core.Outcome{Action: end.action})
		}
		check(end.state, prefix+"1", prefix+"2", prefix+"0")
	}
}

// A group's line has all that stands in it, the head first, whatever its state.
func testListLine(f *fixture) {
	f.add("g", "dead", "a", "b")
	f.put(core.NewJob{Group: "g", ID: "strict", Delay: hour, Scheduling: core.Strict})
	f.put(core.NewJob{Group: "g", ID: "aside", Delay: hour})
	f.add("g", "c")
	f.add("h", "other")
	f.kill(f.claim("dead"))
	l := f.claimUpTo(2)
	equal(f, "line", f.line("g"), []string{"a", "b", "strict", "c"})
	equal(f, "line newest first", f.ids(core.JobFilter{Group: "g", Newest: true}), []string{"c", "strict", "b", "a"})
	for i, want := range []core.State{core.StateRunning, core.StatePending, core.StateScheduled, core.StatePending} {
		equal(f, "state", f.list(core.JobFilter{Group: "g"})[i].State, want)
	}
	equal(f, "leases", len(l), 2)
	equal(f, "line of nobody", f.line("nobody"), []string{})
}

// A walk in pages of any size lists the same jobs in the same order.
func testListPages(f *fixture) {
	n := 23
	f.configure(core.QueueConfig{CompletedRetention: hour})
	f.add("g", names("j", n)...)
	f.add("other", names("o", 5)...)
	for _, filter := range []core.JobFilter{
		{State: core.StatePending}, {State: core.StatePending, Group: "g"}, {Group: "g"},
		{State: core.StatePending, Newest: true}, {Group: "g", Newest: true},
	} {
		want := f.ids(filter)
		for _, limit := range []int{1, 2, 7, n, n + 5, n + 6, core.MaxPage} {
			filter.Queue, filter.Limit = f.queue, limit
			var got []string
			for {
				page, err := f.b.Jobs(f.ctx, filter)
				f.check(err)
				if len(page.Jobs) > limit {
					f.Fatalf("a page of %d jobs with a limit of %d", len(page.Jobs), limit)
				}
				for _, job := range page.Jobs {
					got = append(got, job.ID)
				}
				if filter.Cursor = page.Next; page.Next == "" {
					break
				}
			}
			f.Logf("%+v", filter)
			equal(f, "ids over all pages", got, want)
		}
	}
	equal(f, "page by default", len(f.firstPage(core.JobFilter{State: core.StatePending})), n+5)
	f.add("g", names("k", 100)...)
	equal(f, "page by default", len(f.firstPage(core.JobFilter{State: core.StatePending})), core.DefaultPage)
}

func (f *fixture) firstPage(filter core.JobFilter) []*core.Job {
	f.Helper()
	filter.Queue = f.queue
	page, err := f.b.Jobs(f.ctx, filter)
	f.check(err)
	return page.Jobs
}

func testListNewest(f *fixture) {
	f.add("g", names("j", 9)...)
	f.move(core.StateDead, names("j", 9)...)
	jobs := f.firstPage(core.JobFilter{State: core.StateDead, Newest: true, Limit: 3})
	equal(f, "newest", []string{jobs[0].ID, jobs[1].ID, jobs[2].ID}, []string{"j008", "j007", "j006"})
}

func testListKind(f *fixture) {
	kinds := []string{"mail", "mail.send", "", "Mail"}
	for i := range 20 {
		f.put(core.NewJob{Group: fmt.Sprint("g", i%2), ID: fmt.Sprintf("j%02d", i), Kind: kinds[i%4]})
	}
	for i, kind := range kinds {
		if kind == "" {
			continue // no filter
		}
		want := []string{}
		for j := i; j < 20; j += 4 {
			want = append(want, fmt.Sprintf("j%02d", j))
		}
		for _, limit := range []int{0, 1, 3} {
			equal(f, "jobs of kind "+kind, f.ids(core.JobFilter{State: core.StatePending, Kind: kind, Limit: limit}), want)
			group := fmt.Sprint("g", i%2)
			equal(f, "in line", f.ids(core.JobFilter{Group: group, Kind: kind, Limit: limit}), want)
		}
	}
	equal(f, "jobs of no kind there is", f.ids(core.JobFilter{State: core.StatePending, Kind: "none"}), []string{})
}

func testListGroup(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	for i := range 6 {
		f.put(core.NewJob{Group: fmt.Sprint("g", i%2), ID: fmt.Sprint("j", i)})
	}
	f.add("", "single")
	f.complete(f.claim("j0"))
	f.complete(f.claim("j1"))
	for group, want := range map[string][2][]string{
		"g0": {{"j2", "j4"}, {"j0"}},
		"g1": {{"j3", "j5"}, {"j1"}},
		"g":  {{}, {}},
	} {
		for _, limit := range []int{0, 1} {
			equal(f, "pending of "+group, f.ids(core.JobFilter{State: core.StatePending, Group: group, Limit: limit}), want[0])
			equal(f, "completed of "+group, f.ids(core.JobFilter{State: core.StateCompleted, Group: group, Limit: limit}), want[1])
		}
	}
}

// Many jobs with the very same time are listed by Seq, page after page.
func testListTies(f *fixture) {
	at := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	var batch []core.NewJob
	var want []string
	for i := range 40 {
		id := fmt.Sprintf("j%02d", i*17%40)
		batch = append(batch, core.NewJob{ID: id, RunAt: at})
		want = append(want, id)
	}
	f.publish(batch...)
	for _, limit := range []int{0, 1, 3, 40} {
		equal(f, "scheduled", f.ids(core.JobFilter{State: core.StateScheduled, Limit: limit}), want)
	}
	for i := range batch {
		batch[i].ID, batch[i].RunAt = "now"+batch[i].ID, time.Time{}
	}
	f.publish(batch...)
	leases := f.claimUpTo(40) // all with one claim time
	equal(f, "leases", len(leases), 40)
	for _, limit := range []int{0, 1, 7} {
		running := f.list(core.JobFilter{State: core.StateRunning, Limit: limit})
		equal(f, "running", len(running), 40)
		if !slices.IsSortedFunc(running, func(a, b *core.Job) int {
			return cmpTimes(a.ClaimedAt, b.ClaimedAt, a.Seq, b.Seq)
		}) {
			f.Error("running jobs are not listed by claim time and Seq")
		}
	}
	f.settleAll(leases, core.Outcome{Action: core.Dead}) // all with one finish time
	for _, limit := range []int{0, 1, 7} {
		dead := f.list(core.JobFilter{State: core.StateDead, Limit: limit})
		equal(f, "dead", len(dead), 40)
		if !slices.IsSortedFunc(dead, func(a, b *core.Job) int {
			return cmpTimes(a.FinishedAt, b.FinishedAt, a.Seq, b.Seq)
		}) {
			f.Error("dead jobs are not listed by finish time and Seq")
		}
	}
}

func cmpTimes(a, b time.Time, seqA, seqB int64) int {
	if c := a.Compare(b); c != 0 {
		return c
	}
	return int(seqA - seqB)
}

// A job that stays in its state is listed exactly once, whatever moves around
// it between the pages.
func testListWhileMoving(f *fixture) {
	for _, newest := range []bool{false, true} {
		f := f.otherQueue()
		f.add("g", names("j", 30)...)
		filter := core.JobFilter{Queue: f.queue, State: core.StatePending, Newest: newest, Limit: 4}
		seen := map[string]int{}
		step := 0
		for {
			page, err := f.b.Jobs(f.ctx, filter)
			f.check(err)
			for _, job := range page.Jobs {
				seen[job.ID]++
			}
			if filter.Cursor = page.Next; page.Next == "" {
				break
			}
			if step < 10 { // every third job leaves, new ones come
				f.move(core.StateDead, fmt.Sprintf("j%03d", 3*step))
				f.add("g", fmt.Sprint("new", step))
			}
			step++
		}
		for i := range 30 {
			id := fmt.Sprintf("j%03d", i)
			if n := seen[id]; n > 1 || n == 0 && i%3 != 0 {
				f.Errorf("job %s was listed %d times, newest first: %v", id, n, newest)
			}
		}
	}
}

// The same for running and finished jobs while workers go on.
func testListWhileWorking(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	ids := names("j", 20)
	f.add("g", ids...)
	for range 10 {
		f.complete(f.claimUpTo(1)...)
	}
	filter := core.JobFilter{Queue: f.queue, State: core.StateCompleted, Limit: 3}
	seen := map[string]int{}
	for {
		page, err := f.b.Jobs(f.ctx, filter)
		f.check(err)
		for _, job := range page.Jobs {
			seen[job.ID]++
		}
		if filter.Cursor = page.Next; page.Next == "" {
			break
		}
		leases := f.claimUpTo(1)
		f.complete(leases...)
	}
	for _, id := range ids[:10] {
		equal(f, "times job "+id+" was listed", seen[id], 1)
	}
	for id, n := range seen {
		equal(f, "times job "+id+" was listed", n, 1)
	}
}

func testLookingChangesNothing(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: core.MinLease, EventTTL: hour})
	f.add("g", "a", "b", "c")
	f.complete(f.claim("a"))
	l := f.tryClaim(core.ClaimRequest{Lease: core.MinLease}).Leases[0]
	f.put(core.NewJob{Group: "h", ID: "s", Delay: core.MinLease})
	f.passes(l.Until)
	f.passes(f.job("s").RunAt)
	for range 3 {
		f.unchanged("a look", func() {
			_ = f.dump()
			f.counted()
			_, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue})
			f.check(err)
		})
	}
	f.wantState("b", core.StateRunning) // expired, but nobody has claimed
}
