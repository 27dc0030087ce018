package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

var wakeTests = []test{
	{"Ready", testWakeReady},
	{"FirstOfQueue", testWakeFirst},
	{"ReadyWhenUngrouped", testWakeUngrouped},
	{"ReadySooner", testWakeSooner},
	{"EachTimeAClaimCameBack", testWakeAgain},
	{"Cancel", testWakeCancel},
	{"Finished", testWakeFinished},
	{"AcrossHandles", testWakeAcross},
	{"SeveralQueues", testWakeSeveral},
	{"OtherQueuesAreQuiet", testWakeOthers},
	{"SlowReader", testWakeSlowReader},
	{"ClosedWithContext", testWakeContext},
	{"ClosedWithBackend", testWakeClose},
	{"NotNeeded", testWakeNotNeeded},
}

// listen asks for the hints of queues, the fixture's own if none is named; it
// ends with the test. The fixture's queue is made by it.
func (f *fixture) listen(queues ...string) <-chan core.Wake {
	f.Helper()
	f.configure(core.QueueConfig{})
	if len(queues) == 0 {
		queues = []string{f.queue}
	}
	ctx, cancel := context.WithCancel(f.ctx)
	f.Cleanup(cancel)
	ch, err := f.b.Wakes(ctx, queues...)
	f.check(err)
	return ch
}

// awaitWake reads hints until this one comes. Others may come before it.
func (f *fixture) awaitWake(what string, ch <-chan core.Wake, want core.Wake) {
	f.Helper()
	start := time.Now()
	timeout := time.After(patience)
	for {
		select {
		case got, ok := <-ch:
			if !ok {
				f.Fatalf("%s: the hints ended", what)
			}
			if got == want {
				f.Logf("%s woke after %s", what, time.Since(start))
				return
			}
		case <-timeout:
			f.Fatalf("%s: no hint %+v in %s", what, want, patience)
		}
	}
}

// ready is the hint that there is work.
func (f *fixture) ready() core.Wake { return core.Wake{Kind: core.WakeReady, Queue: f.queue} }

// drain reads the hints that are there already.
func drain(ch <-chan core.Wake) {
	for {
		select {
		case <-ch:
		case <-time.After(20 * time.Millisecond): // there is nothing to await: they are on their way or not
			return
		}
	}
}

// Whatever makes something claimable wakes a worker that found nothing.
func testWakeReady(f *fixture) {
	ch := f.listen()
	wakes := func(what string, do func()) {
		f.Helper()
		f.claimNothing()
		drain(ch)
		do()
		f.awaitWake(what, ch, f.ready())
	}
	wakes("a publish", func() { f.add("g", "a", "b", "c") })
	l := f.claim("a")
	wakes("a completion", func() { f.complete(l) })
	l = f.claim("b")
	wakes("a retry", func() { f.retry(l, 0) })
	l = f.claim("b")
	wakes("a release", func() { f.release(l) })
	l = f.claim("b")
	wakes("a snooze", func() { f.snooze(l, 0) })
	l = f.claim("b")
	wakes("a dead letter", func() { f.kill(l) })
	l = f.claim("c")
	wakes("a cancel", func() {
		f.complete(l)
		f.move(core.StatePending, "b")
	})
	l = f.claim("b")
	f.retry(l, hour)
	wakes("a run now", func() { f.move(core.StatePending, "b") })
	f.complete(f.claim("b"))
}

// A worker may wait for a queue that nobody has published to yet.
func testWakeFirst(f *fixture) {
	for _, delay := range []time.Duration{0, hour} {
		f := f.otherQueue()
		ch, err := f.b.Wakes(f.ctx, f.queue)
		f.check(err)
		f.claimNothing()
		f.put(core.NewJob{Group: "g", ID: "a", Delay: delay})
		f.awaitWake("the first publish", ch, f.ready())
	}
}

func testWakeUngrouped(f *fixture) {
	ch := f.listen()
	f.claimNothing()
	f.add("", "a")
	f.awaitWake("a publish", ch, f.ready())
	l := f.claim("a")
	f.claimNothing()
	drain(ch)
	f.retry(l, 0)
	f.awaitWake("a retry", ch, f.ready())
}

// What brings forward the next thing to fall due tells a worker that sleeps
// until then.
func testWakeSooner(f *fixture) {
	ch := f.listen()
	f.put(core.NewJob{Group: "g", ID: "later", Delay: hour})
	f.claimNothing()
	drain(ch)
	f.put(core.NewJob{Group: "h", ID: "soon", Delay: brief})
	f.awaitWake("a publish", ch, f.ready())
	res := f.tryClaim(core.ClaimRequest{Max: 5})
	if len(res.Leases) == 0 && (res.Next <= 0 || res.Next > brief) {
		f.Errorf("the next falls due in %s, want at most %s", res.Next, brief)
	}
}

// One hint is owed for each time a claim came back with less than it asked for.
func testWakeAgain(f *fixture) {
	ch := f.listen()
	for _, id := range names("j", 10) {
		if id == "j000" {
			f.claimNothing()
		}
		f.add("g", id)
		f.awaitWake("a publish", ch, f.ready())
		leases := f.claimUpTo(5)
		equal(f, "claimed", jobIDs(leases), []string{id})
		f.complete(leases...)
		f.claimNothing()
		drain(ch)
	}
}

func testWakeCancel(f *fixture) {
	ch := f.listen()
	for _, group := range []string{"g", ""} {
		id := "in" + group
		f.add(group, id)
		f.claim(id)
		f.move(core.StateCancelled, id)
		f.awaitWake("a cancel", ch, core.Wake{Kind: core.WakeCancel, Queue: f.queue, JobID: id})
	}
}

func testWakeFinished(f *fixture) {
	ch := f.listen()
	for _, group := range []string{"g", ""} {
		for action := range map[core.Action]bool{core.Complete: true, core.Dead: true, core.Cancel: true} {
			id := action.String() + group
			f.add(group, id)
			l := f.claim(id)
			f.settle(l, core.Outcome{Action: action, Patch: core.Patch{Result: []byte("r")}})
			f.awaitWake(action.String(), ch, core.Wake{Kind: core.WakeFinished, Queue: f.queue, JobID: id})
		}
	}
}

func testWakeAcross(f *fixture) {
	ch := f.listen()
	other, third := f.otherHandle(), f.otherHandle()
	third.claimNothing()
	other.add("g", "a")
	f.awaitWake("a publish", ch, f.ready())
	third.claim("a")
	other.move(core.StateCancelled, "a")
	f.awaitWake("a cancel", ch, core.Wake{Kind: core.WakeCancel, Queue: f.queue, JobID: "a"})
}

func testWakeSeveral(f *fixture) {
	g := f.otherQueue()
	g.configure(core.QueueConfig{})
	ch := f.listen(f.queue, g.queue)
	for _, q := range []*fixture{g, f, g} {
		q.claimNothing()
		drain(ch)
		id := fmt.Sprint("j", f.now().UnixMicro())
		q.add("g", id)
		f.awaitWake("a publish", ch, q.ready())
		q.complete(q.claim(id))
	}
}

// A hint is only for those who asked for its queue.
func testWakeOthers(f *fixture) {
	g := f.otherQueue()
	ch := f.listen()
	g.claimNothing()
	g.add("g", "a")
	g.claim("a")
	g.move(core.StateCancelled, "a")
	f.claimNothing()
	f.add("g", "mine")
	f.claim("mine")
	f.move(core.StateCancelled, "mine")
	for {
		select {
		case w := <-ch:
			equal(f, "queue of the hint", w.Queue, f.queue)
			if w.Kind == core.WakeCancel {
				return
			}
		case <-time.After(patience):
			f.Fatal("no hint")
		}
	}
}

// A reader that does not keep up may lose hints that there is work when another
// waits for it, but none that concerns one job.
func testWakeSlowReader(f *fixture) {
	n := f.h.scale(300)
	f.publish(make([]core.NewJob, n)...)
	leases := f.claimUpTo(n)
	ch := f.listen()
	want := map[string]bool{}
	for i, l := range leases {
		if i%10 == 0 {
			f.claimNothing()
			f.add("g", fmt.Sprint("ready", i))
			f.claimUpTo(1)
		}
		f.move(core.StateCancelled, l.JobID)
		want[l.JobID] = true
	}
	timeout := time.After(patience)
	for len(want) > 0 {
		select {
		case w := <-ch:
			if w.Kind == core.WakeCancel {
				delete(want, w.JobID)
			}
		case <-timeout:
			f.Fatalf("%d of %d hints about cancelled jobs did not come", len(want), n)
		}
	}
}

func testWakeContext(f *fixture) {
	ctx, cancel := context.WithCancel(f.ctx)
	ch, err := f.b.Wakes(ctx, f.queue)
	f.check(err)
	cancel()
	f.ends(ch)
	// The backend goes on for others.
	ch = f.listen()
	f.claimNothing()
	f.add("g", "a")
	f.awaitWake("a publish", ch, f.ready())
}

func testWakeClose(f *fixture) {
	first, second := f.listen(), f.listen()
	f.check(f.b.Close())
	f.ends(first)
	f.ends(second)
}

// ends fails the test unless the channel is closed soon.
func (f *fixture) ends(ch <-chan core.Wake) {
	f.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-timeout:
			f.Fatalf("the hints did not end in %s", patience)
		}
	}
}

// A worker that hears no hint and only sleeps for as long as Next says finds
// all the same everything that falls due by itself.
func testWakeNotNeeded(f *fixture) {
	f.publish(
		core.NewJob{Group: "g", ID: "s1", Delay: brief},
		core.NewJob{Group: "h", ID: "s2", Delay: brief / 2, Scheduling: core.Strict},
		core.NewJob{ID: "s3", Delay: brief / 3},
		core.NewJob{Group: "k", ID: "silent"}, core.NewJob{ID: "failing"},
		core.NewJob{Group: "m", ID: "skipped", OnFailure: core.Skip},
	)
	leases := f.tryClaim(core.ClaimRequest{Max: 3, Lease: brief}).Leases
	for _, l := range leases {
		if l.JobID != "silent" {
			f.retry(l, brief)
		}
	}
	done := map[string]bool{}
	deadline := time.Now().Add(patience)
	for len(done) < 6 {
		res := f.tryClaim(core.ClaimRequest{Max: 10})
		for _, l := range res.Leases {
			f.complete(l)
			done[l.JobID] = true
		}
		if len(res.Leases) > 0 || len(done) == 6 {
			continue
		}
		if res.Next == 0 {
			f.Fatalf("nothing more falls due, but only %v were found", done)
		}
		if time.Now().After(deadline) {
			f.Fatalf("only %v were found in %s", done, patience)
		}
		time.Sleep(res.Next) // what a worker does
	}
}
