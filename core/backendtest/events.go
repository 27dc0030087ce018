package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rota-queue/rota/core"
)

var eventTests = []test{
	{"OffByDefault", testEventsOff},
	{"EveryKind", testEventKinds},
	{"Fields", testEventFields},
	{"ResumeByToken", testEventTokens},
	{"FromNow", testEventsFromNow},
	{"Pages", testEventPages},
	{"SwitchedOnAndOff", testEventsSwitched},
	{"Follow", testFollow},
	{"FollowEnds", testFollowEnds},
	{"OfOneQueue", testEventsOfQueue},
	{"Purged", testEventsPurged},
}

var withEvents = core.QueueConfig{EventTTL: hour, CompletedRetention: hour}

// events reads all events after a token.
func (f *fixture) events(after string) []core.Event {
	f.Helper()
	var all []core.Event
	for {
		page, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue, After: after})
		f.check(err)
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
		after = page.Next
	}
}

// told renders events as "kind id".
func told(events []core.Event) []string {
	list := []string{}
	for _, e := range events {
		list = append(list, fmt.Sprint(e.Kind, " ", e.JobID))
	}
	return list
}

// told does something and returns the events of it.
func (f *fixture) told(do func()) []string {
	f.Helper()
	page, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue, After: core.EventsFromNow})
	f.check(err)
	do()
	return told(f.events(page.Next))
}

func testEventsOff(f *fixture) {
	f.add("g", "a")
	f.complete(f.claim("a"))
	f.configure(core.QueueConfig{EventTTL: core.None})
	f.add("g", "b")
	f.complete(f.claim("b"))
	equal(f, "events", told(f.events("")), []string{})
}

// Each transition writes its event in the step that makes it.
func testEventKinds(f *fixture) {
	f.configure(withEvents)
	want := func(what string, do func(), events ...string) {
		f.Helper()
		equal(f, "events of "+what, strings.Join(f.told(do), ", "), strings.Join(events, ", "))
	}
	want("a publish", func() {
		f.publish(core.NewJob{Group: "g", ID: "a"}, core.NewJob{Group: "g", ID: "b", Delay: hour},
			core.NewJob{ID: "u"}, core.NewJob{Group: "g", ID: "a2"})
	}, "enqueued a", "enqueued b", "enqueued u", "enqueued a2")
	want("a refused publish", func() { f.tryPublish(core.NewJob{ID: "a"}) })
	var l core.Lease
	want("a claim", func() { l = f.claim("a") }, "started a")
	want("an extension", func() { f.extend(l, hour) })
	want("a save", func() { f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: []byte("r")})) })
	want("a retry", func() { f.retry(l, 0) }, "retried a")
	l = f.claim("u")
	want("a snooze", func() { f.snooze(l, hour) }, "released u")
	l = f.claim("a")
	want("a release", func() { f.release(l) }, "released a")
	l = f.claim("a")
	want("an expiry", func() { f.expire(l) })
	want("a take-over", func() { l = f.claim("a") }, "lease_lost a", "started a")
	want("a stale settle", func() {
		stale := l
		stale.Token = "x"
		f.trySettle(stale, core.Outcome{Action: core.Dead})
	})
	want("a completion", func() { f.complete(l) }, "completed a")
	l = f.claim("a2")
	want("a dead letter", func() { f.kill(l) }, "dead a2")
	want("a redrive", func() { f.move(core.StatePending, "a2") }, "redriven a2")
	want("a refused move", func() { f.tryMove(core.StatePending, "a2") })
	l = f.claim("a2")
	want("a cancel", func() { f.settle(l, core.Outcome{Action: core.Cancel}) }, "cancelled a2")
	want("a deletion", func() { f.move(core.StateGone, "a2") }, "deleted a2")
	want("a cancel by a person", func() { f.move(core.StateCancelled, "b") }, "cancelled b")
	want("a death by a person", func() { f.move(core.StateDead, "b") }, "dead b")
	f.add("g", "c")
	want("a skip", func() { f.act("g", core.SkipHead) }, "cancelled c")
	f.put(core.NewJob{Group: "g", ID: "poison", MaxAttempts: 1, OnExhausted: core.Hold})
	l = f.claim("poison")
	got := f.told(func() { f.kill(l) })
	slices.Sort(got)
	equal(f, "events of a hold", got, []string{"dead poison", "held poison"})
	f.move(core.StatePending, "poison")
	f.expire(f.claim("poison"))
	got = f.told(func() { f.claimNothing() })
	slices.Sort(got)
	equal(f, "events of a poison job's end", got, []string{"dead poison", "held poison", "lease_lost poison"})
}

func testEventFields(f *fixture) {
	f.configure(withEvents)
	from := f.now()
	f.put(core.NewJob{Group: "g", ID: "a", Kind: "mail"})
	l := f.claim("a")
	f.settle(l, core.Outcome{Action: core.Retry, Error: "boom"})
	f.complete(f.claim("a"))
	events := f.events("")
	equal(f, "events", told(events), []string{"enqueued a", "started a", "retried a", "started a", "completed a"})
	tokens := map[string]bool{}
	for i, e := range events {
		f.within("time of the event", e.At, from, f.now())
		from = e.At
		if e.Token == "" || tokens[e.Token] {
			f.Errorf("token %q of an event is empty or not its own", e.Token)
		}
		tokens[e.Token] = true
		equal(f, "queue, group, kind", []string{e.Queue, e.Group, e.JobKind}, []string{f.queue, "g", "mail"})
		equal(f, "attempt", e.Attempt, []int{0, 1, 1, 2, 2}[i])
		equal(f, "error", e.Error, []string{"", "", "boom", "", ""}[i])
		if i > 0 {
			equal(f, "worker", e.Worker, owner)
		}
	}
}

// Each token continues behind its event; Next continues behind the page.
func testEventTokens(f *fixture) {
	f.configure(withEvents)
	ids := names("j", 10)
	f.add("g", ids...)
	events := f.events("")
	equal(f, "events", len(events), 10)
	for i, e := range events {
		equal(f, "events after a token", len(f.events(e.Token)), 10-i-1)
	}
	last := events[9].Token
	page, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue, After: last})
	f.check(err)
	equal(f, "events behind the last", len(page.Events), 0)
	f.add("g", "more")
	for _, after := range []string{last, page.Next} {
		equal(f, "events", told(f.events(after)), []string{"enqueued more"})
	}
	equal(f, "events through another handle", len(f.otherHandle().events(last)), 1)
}

func testEventsFromNow(f *fixture) {
	f.configure(withEvents)
	for range 2 { // without and with events there
		page, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue, After: core.EventsFromNow})
		f.check(err)
		equal(f, "events", len(page.Events), 0)
		if page.Next == "" {
			f.Fatal("there is no token to continue with")
		}
		id := fmt.Sprint("j", f.now().UnixMicro())
		f.add("g", id)
		equal(f, "events", told(f.events(page.Next)), []string{"enqueued " + id})
	}
}

func testEventPages(f *fixture) {
	f.configure(withEvents)
	n := 250
	f.publish(make([]core.NewJob, n)...)
	for _, limit := range []int{0, 1, 99, core.MaxPage} {
		want := limit
		if limit == 0 {
			want = core.DefaultPage
		}
		var ids []string
		after := ""
		for {
			page, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue, After: after, Limit: limit})
			f.check(err)
			if len(page.Events) == 0 {
				break
			}
			if len(page.Events) > want {
				f.Fatalf("a page of %d events with a limit of %d", len(page.Events), limit)
			}
			for _, e := range page.Events {
				ids = append(ids, e.JobID)
			}
			after = page.Next
		}
		equal(f, "events over all pages", len(ids), n)
		slices.Sort(ids)
		equal(f, "different jobs", len(slices.Compact(ids)), n)
	}
}

func testEventsSwitched(f *fixture) {
	f.add("g", "a")
	f.configure(withEvents)
	f.add("g", "b")
	f.configure(core.QueueConfig{})
	f.add("g", "c")
	f.configure(withEvents)
	f.add("g", "d")
	equal(f, "events", told(f.events("")), []string{"enqueued b", "enqueued d"})
}

// core.Follow gives what is kept and then what comes.
func testFollow(f *fixture) {
	f.configure(withEvents)
	f.add("g", "a", "b")
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	var got []string
	for e, err := range core.Follow(ctx, f.b, core.EventFilter{Queue: f.queue, Limit: 1}) {
		f.check(err)
		got = append(got, fmt.Sprint(e.Kind, " ", e.JobID))
		if len(got) == 2 {
			f.otherHandle().add("g", "c")
		}
		if len(got) == 3 {
			break
		}
	}
	equal(f, "events", got, []string{"enqueued a", "enqueued b", "enqueued c"})
	f.check(ctx.Err())
}

func testFollowEnds(f *fixture) {
	f.configure(withEvents)
	ctx, cancel := context.WithTimeout(f.ctx, brief)
	defer cancel()
	for e, err := range core.Follow(ctx, f.b, core.EventFilter{Queue: f.queue}) {
		f.Fatalf("got %v, %v", e, err)
	}
	bad := 0
	for _, err := range core.Follow(f.ctx, f.b, core.EventFilter{Queue: "", After: ""}) {
		f.wantErr(err, core.ErrInvalid)
		bad++
	}
	equal(f, "errors of a follow that can not work", bad, 1)
}

func testEventsOfQueue(f *fixture) {
	g := f.otherQueue()
	f.configure(withEvents)
	g.configure(withEvents)
	f.add("g", "a")
	g.add("g", "b")
	equal(f, "events", told(f.events("")), []string{"enqueued a"})
	equal(f, "events", told(g.events("")), []string{"enqueued b"})
}

// Events that are too old go with a purge.
func testEventsPurged(f *fixture) {
	f.configure(core.QueueConfig{EventTTL: hour})
	f.add("g", "a")
	old := f.events("")
	equal(f, "events", told(old), []string{"enqueued a"})
	f.passes(f.now().Add(core.MinLease))
	f.configure(core.QueueConfig{EventTTL: core.MinLease})
	f.eventually("the old event is purged", func() bool {
		_, err := f.b.Purge(f.ctx, f.queue, 100)
		f.check(err)
		return len(f.events("")) == 0
	})
	f.configure(withEvents)
	f.add("g", "b")
	equal(f, "events after a token whose event is gone", told(f.events(old[0].Token)), []string{"enqueued b"})
}
