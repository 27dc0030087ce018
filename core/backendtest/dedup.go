package backendtest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
)

var dedupTests = []test{
	{"Reject", testDedupReject},
	{"ScopeByState", testDedupScopes},
	{"DefaultScope", testDedupDefault},
	{"UntilStarted", testDedupUntilStarted},
	{"HoldersScopeCounts", testDedupHolderScope},
	{"Window", testDedupWindow},
	{"WindowEndsEarly", testDedupWindowEnds},
	{"WindowAndScope", testDedupWindowAndScope},
	{"WindowOutlastsTheQueue", testDedupOverDeletion},
	{"IDComesBack", testDedupIDComesBack},
	{"DeletedWithTheQueue", testDedupDeletedQueue},
	{"OneOfManyPublishers", testOnePublishWins},
	{"OtherQueue", testDedupOtherQueue},
	{"RefusedLeavesNothing", testRefusedLeavesNothing},
	{"RedriveWhoseKeyIsTaken", testRedriveTaken},
	{"RedriveTakesKeyAgain", testRedriveTakesKey},
	{"NoKey", testNoKey},
}

// key makes a job with a dedup key.
func key(id string, d core.Dedup) core.NewJob {
	if d.Key == "" {
		d.Key = "k"
	}
	return core.NewJob{Group: "g", ID: id, Dedup: d}
}

// refuse publishes a job that must be refused because holder has its key.
func (f *fixture) refuse(job core.NewJob, holder string) {
	f.Helper()
	res := f.tryPublish(job)[0]
	f.wantDuplicate(res.Err, job.Dedup.Key, holder)
	equal(f, "Seq of a duplicate", res.Seq, 0)
	if res.Existing || res.Replaced {
		f.Errorf("a refused publish says existing %v, replaced %v", res.Existing, res.Replaced)
	}
	if job.ID != "" && job.ID != holder {
		f.wantState(job.ID, core.StateGone)
	}
}

// wantDuplicate fails the test unless err says that holder has the key; an empty
// key stands for the id.
func (f *fixture) wantDuplicate(err error, key, holder string) {
	f.Helper()
	var dup *core.DuplicateError
	if !errors.As(err, &dup) {
		f.Fatalf("got error %v, want a *DuplicateError", err)
	}
	equal(f, "the duplicate", *dup, core.DuplicateError{Queue: f.queue, Key: key, ID: holder})
	if key == "" {
		f.wantErr(err, core.ErrIDTaken)
	} else {
		f.wantErr(err, core.ErrDuplicate)
	}
}

func testDedupReject(f *fixture) {
	first := f.put(key("a", core.Dedup{}))
	equal(f, "id", first.ID, "a")
	equal(f, "key of the job", f.job("a").DedupKey, "k")
	f.refuse(key("b", core.Dedup{}), "a")
	f.refuse(key("", core.Dedup{}), "a")
	f.put(key("c", core.Dedup{Key: "other"}))
	other := key("d", core.Dedup{})
	other.Group = "another"
	f.refuse(other, "a") // a key is of the queue, not of the group
	other.Group = ""
	f.refuse(other, "a")
	f.wantServed("a", "c")
}

// inState puts the only job with the key, a, into a state. It is published with
// this scope.
func (f *fixture) inState(state core.State, d core.Dedup) {
	f.Helper()
	f.configure(core.QueueConfig{CompletedRetention: hour})
	job := key("a", d)
	if state == core.StateScheduled {
		job.Delay = hour
	}
	f.put(job)
	switch state {
	case core.StateRunning:
		f.claim("a")
	case core.StateRetrying:
		f.retry(f.claim("a"), hour)
	case core.StateCompleted:
		f.complete(f.claim("a"))
	case core.StateDead:
		f.kill(f.claim("a"))
	case core.StateCancelled:
		f.move(core.StateCancelled, "a")
	case core.StateGone:
		f.move(core.StateGone, "a")
	}
	f.wantState("a", state)
}

// In each state of its holder the key is taken exactly if the scope says so.
func testDedupScopes(f *fixture) {
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{While: core.States(state)})
		f.Logf("holder is %s", state)
		f.refuse(key("b", core.Dedup{}), "a")

		f = f.otherQueue()
		f.inState(state, core.Dedup{While: core.AnyState &^ core.States(state, core.StateGone)})
		f.put(key("b", core.Dedup{}))
		f.refuse(key("c", core.Dedup{}), "b")
	}
	f.inState(core.StateGone, core.Dedup{While: core.AnyState &^ core.States(core.StateGone)})
	f.put(key("b", core.Dedup{}))
	g := f.otherQueue()
	g.inState(core.StateGone, core.Dedup{While: core.States(core.StatePending, core.StateGone), Window: hour})
	g.refuse(key("b", core.Dedup{}), "a")
}

// Without a scope the key is free again when the job has finished.
func testDedupDefault(f *fixture) {
	for name, finish := range drains {
		if name == "skip" {
			continue // retrying is not finished
		}
		f := f.otherQueue()
		f.Log(name)
		f.put(key("a", core.Dedup{}))
		f.refuse(key("x", core.Dedup{}), "a")
		finish(f)
		f.put(key("b", core.Dedup{}))
		f.refuse(key("x", core.Dedup{}), "b")
	}
}

func testDedupUntilStarted(f *fixture) {
	scope := core.Dedup{While: core.Unstarted}
	f.put(key("a", scope))
	f.refuse(key("b", scope), "a")
	f.release(f.claim("a"))
	f.refuse(key("b", scope), "a") // not started after all
	l := f.claim("a")
	f.put(key("b", scope))
	// Given back, a is pending once more, but the key is b's.
	f.release(l)
	f.refuse(key("c", scope), "b")
	f.complete(f.claim("a"))
	f.refuse(key("c", scope), "b")
	f.claim("b")
	f.put(key("c", scope))
}

// The scope is the holder's. What a later publish asks for counts when it holds
// the key itself.
func testDedupHolderScope(f *fixture) {
	f.put(key("a", core.Dedup{While: core.Unstarted}))
	f.refuse(key("b", core.Dedup{While: core.States(core.StateCompleted)}), "a")
	l := f.claim("a")
	f.put(key("b", core.Dedup{While: core.AnyState, Window: hour}))
	f.complete(l)
	f.complete(f.claim("b"))
	f.refuse(key("c", core.Dedup{While: core.Unstarted}), "b")
}

// A window without a scope outlasts the job.
func testDedupWindow(f *fixture) {
	scope := core.Dedup{Window: hour}
	f.put(key("a", scope))
	f.refuse(key("b", scope), "a")
	f.complete(f.claim("a"))
	f.wantState("a", core.StateGone)
	f.refuse(key("b", scope), "a")
	_, err := f.b.Purge(f.ctx, f.queue, core.MaxPage)
	f.check(err)
	f.refuse(key("b", scope), "a")

	f.put(key("c", core.Dedup{Key: "k2", Window: hour}))
	f.move(core.StateGone, "c")
	f.refuse(key("d", core.Dedup{Key: "k2"}), "c")
}

// When the window is over the key is free, though the job still runs.
func testDedupWindowEnds(f *fixture) {
	for _, scope := range []core.Dedup{{Window: brief}, {Window: brief, While: core.Unfinished}} {
		f := f.otherQueue()
		from := f.now()
		f.put(key("a", scope))
		f.claim("a")
		res := f.tryPublish(key("b", scope))[0]
		if now := f.now(); res.Err == nil && now.Before(from.Add(brief)) {
			f.Fatalf("the key was free at %s, before the window was over", clock(now))
		}
		f.passes(f.now().Add(brief))
		if res.Err == nil { // a slow store: the window was over already
			f.put(key("c", scope))
			continue
		}
		f.put(key("b", core.Dedup{Window: hour}))
		f.refuse(key("c", scope), "b")
	}
}

// Of a window and a scope, what ends first frees the key.
func testDedupWindowAndScope(f *fixture) {
	f.put(key("a", core.Dedup{Window: hour, While: core.Unfinished}))
	f.complete(f.claim("a"))
	f.put(key("b", core.Dedup{}))
}

func testDedupOverDeletion(f *fixture) {
	scope := core.Dedup{Window: hour}
	f.put(key("a", scope))
	f.put(key("b", core.Dedup{Key: "k2"}))
	f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
	f.refuse(key("c", scope), "a")
	f.put(key("c", core.Dedup{Key: "k2"}))
}

// A key is a job's, not an id's: when the holder has gone and its id comes back
// with another job, that one is not the holder.
func testDedupIDComesBack(f *fixture) {
	window := core.Dedup{Window: hour}
	for name, end := range map[string]func(*fixture){
		"deleted":        func(f *fixture) { f.move(core.StateGone, "a") },
		"completed":      func(f *fixture) { f.complete(f.claim("a")) },
		"with its queue": func(f *fixture) { f.check(f.b.DeleteQueue(f.ctx, f.queue, true)) },
	} {
		f := f.otherQueue()
		f.Log(name)
		f.put(key("a", window))
		end(f)
		f.put(core.NewJob{Group: "g", ID: "a"})
		for _, conflict := range []core.Conflict{core.Reject, core.ReplacePending, core.AllowAfterFailure} {
			f.refuse(key("b", core.Dedup{Window: hour, OnConflict: conflict}), "a")
		}
	}
}

func testDedupDeletedQueue(f *fixture) {
	for _, scope := range []core.Dedup{
		{}, {While: core.Unstarted}, {Window: hour, While: core.Unfinished | core.Finished}, {While: core.AnyState},
	} {
		f.put(key("a", scope))
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		f.put(key("b", scope))
		f.refuse(key("c", scope), "b")
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
	}
	// Taken for ever is as long as the queue is there, also by a job that is not.
	forever := core.Dedup{While: core.AnyState}
	f.put(key("a", forever))
	f.complete(f.claim("a"))
	f.refuse(key("b", forever), "a")
	f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
	f.put(key("b", forever))
}

// Of many publishes with one key at once, one is first.
func testOnePublishWins(f *fixture) {
	handles := []core.Backend{f.b, f.open(), f.open()}
	for round := range 10 {
		var published, existing atomic.Int64
		ids := make([]string, 8)
		f.together(len(ids), func(i int) error {
			conflict := core.Reject
			if i%2 == 0 {
				conflict = core.ReturnExisting
			}
			res, err := core.Publish(f.ctx, handles[i%3], core.NewJob{
				Queue: f.queue, Dedup: core.Dedup{Key: fmt.Sprint("k", round), OnConflict: conflict},
			})
			var dup *core.DuplicateError
			switch {
			case errors.As(err, &dup):
				ids[i] = dup.ID
				return nil
			case err != nil:
				return err
			case res.Existing:
				existing.Add(1)
			default:
				published.Add(1)
			}
			ids[i] = res.ID
			return nil
		})
		equal(f, "published", published.Load(), 1)
		for _, id := range ids {
			equal(f, "id of the holder", id, ids[0])
		}
	}
	equal(f, "jobs", f.info().Jobs[core.StatePending], 10)
}

func testDedupOtherQueue(f *fixture) {
	g := f.otherQueue()
	f.put(key("a", core.Dedup{}))
	g.put(key("a", core.Dedup{}))
	f.refuse(key("b", core.Dedup{}), "a")
	g.complete(g.claim("a"))
	f.refuse(key("b", core.Dedup{}), "a")
	g.put(key("b", core.Dedup{}))
}

func testRefusedLeavesNothing(f *fixture) {
	f.put(key("a", core.Dedup{}))
	f.unchanged("a refused publish", func() {
		f.refuse(core.NewJob{Group: "new", ID: "b", Priority: 4, Dedup: core.Dedup{Key: "k"}}, "a")
		f.refuse(core.NewJob{Group: "g", ID: "b", Delay: hour, Dedup: core.Dedup{Key: "k", Window: time.Minute}}, "a")
		f.wantNoGroup("new")
	})
}

// A dead job can not come back while another has its key.
func testRedriveTaken(f *fixture) {
	f.put(key("a", core.Dedup{}))
	f.kill(f.claim("a"))
	f.put(key("b", core.Dedup{}))
	f.unchanged("a refused redrive", func() {
		f.wantDuplicate(f.tryMove(core.StatePending, "a").Errs[0], "k", "b")
	})
	f.complete(f.claim("b"))
	f.move(core.StatePending, "a")
	f.refuse(key("c", core.Dedup{}), "a")
	f.wantServed("a")
}

func testRedriveTakesKey(f *fixture) {
	f.put(key("a", core.Dedup{}))
	f.kill(f.claim("a"))
	f.move(core.StatePending, "a")
	f.refuse(key("b", core.Dedup{}), "a")
	f.complete(f.claim("a"))
	f.put(key("b", core.Dedup{}))

	// A scope without pending does not take it.
	scope := core.Dedup{Key: "k2", While: core.States(core.StateScheduled)}
	job := key("c", scope)
	job.Delay = hour
	f.put(job)
	f.refuse(key("d", scope), "c")
	f.move(core.StatePending, "c")
	f.put(key("d", scope))
}

func testNoKey(f *fixture) {
	for range 3 {
		f.put(core.NewJob{Group: "g", Dedup: core.Dedup{While: core.AnyState, Window: hour}})
	}
	equal(f, "jobs", len(f.serve()), 3)
}
