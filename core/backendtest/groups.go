package backendtest

import (
	"fmt"
	"slices"

	"github.com/rota-queue/rota/core"
)

var groupTests = []test{
	{"Info", testGroupInfo},
	{"InfoWhileLeased", testGroupLease},
	{"ExpiredLeaseIsTold", testGroupExpired},
	{"ListInOrderOfNames", testGroupsByName},
	{"Pages", testGroupPages},
	{"ListAndOneAgree", testGroupsAgree},
	{"WhichGroupsExist", testWhichGroups},
	{"WhileGroupsChange", testGroupsWhileChanging},
}

func testGroupInfo(f *fixture) {
	from := f.now()
	f.put(core.NewJob{Group: "g", ID: "a", Priority: 3})
	to := f.now()
	f.add("g", "b", "c")
	f.put(core.NewJob{Group: "g", ID: "aside", Delay: hour})
	info := f.group("g")
	f.within("due since", info.DueSince, from.Add(-core.DefaultHeadStart), to.Add(-core.DefaultHeadStart))
	equal(f, "oldest", clock(info.OldestAt), clock(f.job("a").CreatedAt))
	info.DueSince, info.OldestAt = from, from
	equal(f, "group", info, core.GroupInfo{
		Queue: f.queue, Group: "g", Priority: 3, Depth: 3, Head: "a", DueSince: from, OldestAt: from,
	})
	f.complete(f.claim("a"))
	info = f.group("g")
	equal(f, "depth", info.Depth, 2)
	equal(f, "head", info.Head, "b")
	equal(f, "oldest", clock(info.OldestAt), clock(f.job("b").CreatedAt))
}

func testGroupLease(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	info := f.group("g")
	if info.Lease == nil {
		f.Fatal("the group has no lease")
	}
	equal(f, "owner", info.Lease.Owner, owner)
	equal(f, "fence", info.Lease.Fence, l.Fence)
	equal(f, "until", clock(info.Lease.Until), clock(l.Until))
	equal(f, "depth", info.Depth, 2)
	equal(f, "head", info.Head, "a")
	f.complete(l)
	equal(f, "lease", f.group("g").Lease, nil)
}

// A lease that has run out is told until a claim takes the group over.
func testGroupExpired(f *fixture) {
	f.add("g", "a")
	l := f.claim("a")
	f.expire(l)
	info := f.group("g")
	if info.Lease == nil || info.Lease.Fence != l.Fence || info.Lease.Until.After(f.now()) {
		f.Fatalf("the lease is %+v, want the expired one", info.Lease)
	}
	equal(f, "due since", clock(info.DueSince), clock(info.Lease.Until))
	next := f.claim("a")
	equal(f, "fence", f.group("g").Lease.Fence, next.Fence)
}

// Names are listed in the order of their bytes, whatever a store's own notion.
func testGroupsByName(f *fixture) {
	want := []string{"#", "10", "9", "A", "B", "Zz", "a", "a b", "a:b", "aa", "b", "z", "{x}", "~", "Ü", "é", "日本", "🙂"}
	if !slices.IsSorted(want) {
		f.Fatal("the test is wrong")
	}
	for i := range want {
		f.add(want[i*5%len(want)], fmt.Sprint("j", i))
	}
	for _, limit := range []int{0, 1, 3, len(want)} {
		groups, err := listGroups(f.ctx, f.b, core.GroupFilter{Queue: f.queue, Limit: limit})
		f.check(err)
		got := []string{}
		for _, g := range groups {
			got = append(got, g.Group)
		}
		equal(f, "groups", got, want)
	}
}

func testGroupPages(f *fixture) {
	n := core.DefaultPage + 30
	batch := make([]core.NewJob, n)
	for i, name := range names("g", n) {
		batch[i] = core.NewJob{Group: name}
	}
	f.publish(batch...)
	page, err := f.b.Groups(f.ctx, core.GroupFilter{Queue: f.queue})
	f.check(err)
	equal(f, "page by default", len(page.Groups), core.DefaultPage)
	if page.Next == "" {
		f.Fatal("there is no next page")
	}
	page, err = f.b.Groups(f.ctx, core.GroupFilter{Queue: f.queue, Cursor: page.Next})
	f.check(err)
	equal(f, "second page", len(page.Groups), 30)
	equal(f, "first of the second page", page.Groups[0].Group, "g100")
	equal(f, "next", page.Next, "")
	page, err = f.b.Groups(f.ctx, core.GroupFilter{Queue: f.queue, Limit: core.MaxPage})
	f.check(err)
	equal(f, "page", len(page.Groups), n)
}

// A group is told the same in the list as by itself, in every condition.
func testGroupsAgree(f *fixture) {
	f.add("free", "f1", "f2")
	f.add("leased", "l1")
	f.add("parked", "p1")
	f.add("pausing", "q1")
	f.put(core.NewJob{Group: "held", ID: "h1", OnExhausted: core.Hold})
	f.add("held", "h2")
	leases := f.claimBatch("f1", "l1", "p1", "q1", "h1")
	f.complete(leases[0])
	f.retry(leases[2], hour)
	f.act("pausing", core.PauseGroup)
	f.kill(leases[4])
	f.act("empty", core.PauseGroup)
	groups, err := listGroups(f.ctx, f.b, core.GroupFilter{Queue: f.queue})
	f.check(err)
	equal(f, "groups", len(groups), 6)
	equal(f, "groups of the queue", f.info().Groups, 6)
	for _, g := range groups {
		equal(f, "group", plainGroup(g), plainGroup(f.group(g.Group)))
	}
}

// plainGroup makes two descriptions of a group comparable.
func plainGroup(g core.GroupInfo) string {
	lease := "none"
	if g.Lease != nil {
		lease = fmt.Sprint(g.Lease.Owner, g.Lease.Fence, clock(g.Lease.Until))
	}
	g.Lease = nil
	return fmt.Sprintf("%s %s p%d depth %d head %s lease %s due %s oldest %s paused %v held %v by %q",
		g.Queue, g.Group, g.Priority, g.Depth, g.Head, lease, clock(g.DueSince), clock(g.OldestAt), g.Paused, g.Held, g.HeldBy)
}

// A group exists while it has jobs in line, or is paused or held.
func testWhichGroups(f *fixture) {
	exists := func(want int64) {
		f.Helper()
		groups, err := listGroups(f.ctx, f.b, core.GroupFilter{Queue: f.queue})
		f.check(err)
		equal(f, "groups listed", int64(len(groups)), want)
		equal(f, "groups counted", f.info().Groups, want)
	}
	f.put(core.NewJob{Group: "g", ID: "aside", Delay: hour})
	f.add("", "single")
	exists(0)
	f.add("g", "a")
	exists(1)
	l := f.claim("a")
	exists(1)
	f.kill(l)
	exists(0)
	f.move(core.StatePending, "a")
	exists(1)
	f.act("g", core.PauseGroup)
	f.move(core.StateGone, "a")
	exists(1)
	f.act("g", core.HoldGroup)
	f.act("g", core.ResumeGroup)
	exists(1)
	f.act("g", core.ReleaseGroup)
	exists(0)
	f.move(core.StatePending, "aside")
	exists(1)
	f.wantServed("aside", "single")
	exists(0)
}

// A group that stays is listed exactly once in a walk, whatever comes and goes.
func testGroupsWhileChanging(f *fixture) {
	for i, g := range names("g", 30) {
		f.add(g, fmt.Sprintf("j%03d", i))
	}
	filter := core.GroupFilter{Queue: f.queue, Limit: 4}
	seen := map[string]int{}
	for step := 0; ; step++ {
		page, err := f.b.Groups(f.ctx, filter)
		f.check(err)
		for _, g := range page.Groups {
			seen[g.Group]++
		}
		if filter.Cursor = page.Next; page.Next == "" {
			break
		}
		if step < 10 {
			f.move(core.StateGone, fmt.Sprintf("j%03d", 3*step))
			f.add(fmt.Sprintf("g%03da", 2*step), fmt.Sprint("new", step))
		}
	}
	for i, g := range names("g", 30) {
		if n := seen[g]; n > 1 || n == 0 && i%3 != 0 {
			f.Errorf("group %s was listed %d times", g, n)
		}
	}
}
