package backendtest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rota-queue/rota/core"
)

var keptTests = []test{
	{"VisibleWhenAcknowledged", testVisibleAtOnce},
	{"PublishMeetsDrain", testPublishMeetsDrain},
	{"PublishAfterDrain", testPublishAfterDrain},
	{"PublishMeetsRelease", testPublishMeetsRelease},
	{"PublishMeetsDeletion", testPublishMeetsDeletion},
	{"EndedJobsAreVisible", testEndedVisible},
	{"OneOfManySettles", testOneOfManySettles},
	{"SetAsideComesBack", testSetAsideComesBack},
}

// What one handle was told is stored, every other handle sees at once.
func testVisibleAtOnce(f *fixture) {
	other := f.otherHandle()
	for i, id := range names("j", 20) {
		f.put(core.NewJob{Group: fmt.Sprint("g", i%3), ID: id})
		other.wantState(id, core.StatePending)
		l := other.claimUpTo(1)
		equal(f, "leases", len(l), 1)
		f.complete(l...)
		other.wantState(l[0].JobID, core.StateGone)
	}
}

// A publish and the settle that drains its group run at the same moment: the
// next claim finds the job, whoever was first.
func testPublishMeetsDrain(f *fixture) {
	other := f.otherHandle()
	for round := range f.h.scale(200) {
		first, second := fmt.Sprint("a", round), fmt.Sprint("b", round)
		f.add("g", first)
		l := f.claim(first)
		f.together(2, func(i int) error {
			if i == 0 {
				_, err := core.Publish(f.ctx, other.b, core.NewJob{Queue: f.queue, Group: "g", ID: second})
				return err
			}
			res, err := f.b.Settle(f.ctx, f.queue, []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete}})
			return errors.Join(err, res[0].Err)
		})
		f.complete(f.claim(second))
	}
}

func testPublishAfterDrain(f *fixture) {
	for _, id := range names("j", 20) {
		f.add("g", id)
		l := f.claim(id)
		f.claimNothing()
		f.complete(l)
		f.claimNothing()
	}
}

func testPublishMeetsRelease(f *fixture) {
	other := f.otherHandle()
	for round := range f.h.scale(100) {
		first, second := fmt.Sprint("a", round), fmt.Sprint("b", round)
		f.add("g", first)
		l := f.claim(first)
		f.together(2, func(i int) error {
			if i == 0 {
				_, err := core.Publish(f.ctx, other.b, core.NewJob{Queue: f.queue, Group: "g", ID: second})
				return err
			}
			res, err := f.b.Settle(f.ctx, f.queue, []core.Outcome{{Lease: l.LeaseRef, Action: core.Release}})
			return errors.Join(err, res[0].Err)
		})
		f.wantServed(first, second)
	}
}

// A publish meets the deletion of its queue: it goes with the queue or it is in
// the new one; never is it half there.
func testPublishMeetsDeletion(f *fixture) {
	other := f.otherHandle()
	for round := range f.h.scale(100) {
		id := fmt.Sprint("j", round)
		f.add("g", "old")
		f.together(2, func(i int) error {
			if i == 0 {
				_, err := core.Publish(f.ctx, other.b, core.NewJob{Queue: f.queue, Group: "g", ID: id})
				return err
			}
			return f.b.DeleteQueue(f.ctx, f.queue, true)
		})
		if f.state(id) == core.StateGone {
			f.claimNothing()
			f.wantNoGroup("g")
			continue
		}
		f.wantServed(id)
	}
}

// What has ended can be seen for as long as the queue keeps it.
func testEndedVisible(f *fixture) {
	f.configure(core.QueueConfig{CompletedRetention: hour})
	want := map[core.Action]core.State{
		core.Complete: core.StateCompleted, core.Dead: core.StateDead, core.Cancel: core.StateCancelled,
	}
	for action, state := range want {
		f.add("g", state.String())
		equal(f, "state", f.settle(f.claim(state.String()), core.Outcome{Action: action}), state)
	}
	for _, state := range want {
		f.wantState(state.String(), state)
		equal(f, "listed", f.ids(core.JobFilter{State: state}), []string{state.String()})
	}
	f.wantNoGroup("g")
}

// A holder that is not sure settles again, maybe at the same time: one of the
// settles counts.
func testOneOfManySettles(f *fixture) {
	handles := []core.Backend{f.b, f.open()}
	for round := range 20 {
		id := fmt.Sprint("j", round)
		f.add("g", id)
		l := f.claim(id)
		var accepted atomic.Int64
		f.together(4, func(i int) error {
			res, err := handles[i%2].Settle(f.ctx, f.queue, []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete}})
			if err != nil {
				return err
			}
			if res[0].Err == nil {
				accepted.Add(1)
			} else if !errors.Is(res[0].Err, core.ErrLeaseLost) {
				return res[0].Err
			}
			return nil
		})
		equal(f, "accepted settles", accepted.Load(), 1)
	}
	equal(f, "completed", f.counted().Completed, 20)
}

// Whatever sets a group aside, what ends it brings the group back: nothing else
// has to happen.
func testSetAsideComesBack(f *fixture) {
	for name, c := range map[string]struct{ aside, back func(f *fixture) }{
		"pause": {
			func(f *fixture) { f.act("g", core.PauseGroup) },
			func(f *fixture) { f.act("g", core.ResumeGroup) },
		},
		"hold": {
			func(f *fixture) { f.act("g", core.HoldGroup) },
			func(f *fixture) { f.act("g", core.ReleaseGroup) },
		},
		"queue pause": {
			func(f *fixture) { _, err := f.b.PauseQueue(f.ctx, f.queue); f.check(err) },
			func(f *fixture) { _, err := f.b.ResumeQueue(f.ctx, f.queue); f.check(err) },
		},
	} {
		for _, when := range []string{"before the publish", "before the claim", "while leased", "while expired"} {
			f := f.otherQueue()
			f.Logf("%s %s", name, when)
			if when == "before the publish" {
				f.add("other", "other") // makes the queue
				f.wantServed("other")
				c.aside(f)
			}
			f.add("g", "a", "b")
			want := []string{"a", "b"}
			switch when {
			case "before the claim":
				c.aside(f)
			case "while leased":
				l := f.claim("a")
				c.aside(f)
				f.complete(l)
				want = want[1:]
			case "while expired":
				l := f.claim("a")
				c.aside(f)
				f.expire(l)
			}
			// Claims may meet the group while it is aside, and forget it.
			for range 2 {
				res, err := f.b.Claim(f.ctx, core.ClaimRequest{Queue: f.queue, Max: 10, Lease: hour})
				if err != nil && !errors.Is(err, core.ErrQueuePaused) {
					f.Fatal(err)
				}
				equal(f, "claimed while aside", jobIDs(res.Leases), []string{})
			}
			c.back(f)
			f.wantServed(want...)
		}
	}
}
