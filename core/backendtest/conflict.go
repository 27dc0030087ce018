package backendtest

import (
	"time"

	"github.com/rota-queue/rota/core"
)

// conflictTests are about what a second publish with a taken key gets.
var conflictTests = []test{
	{"ReturnExisting", testReturnExisting},
	{"AllowAfterFailure", testAllowAfterFailure},
	{"AllowAfterFailureOnlyThen", testAllowAfterFailureOnly},
	{"AllowAfterFailureTakesOver", testTakesOver},
	{"ReplacePending", testReplacePending},
	{"ReplaceKeepsPlace", testReplaceKeepsPlace},
	{"ReplaceOnlyUnstarted", testReplaceUnstarted},
	{"ReplaceScheduled", testReplaceScheduled},
	{"ReplaceStrict", testReplaceStrict},
	{"FreeKey", testConflictFreeKey},
	{"AllOrNothingIsNotHindered", testConflictAllOrNothing},
}

func testReturnExisting(f *fixture) {
	again := key("b", core.Dedup{OnConflict: core.ReturnExisting})
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{While: core.AnyState &^ core.States(core.StateGone)})
		f.unchanged("a duplicate", func() {
			res := f.put(again)
			equal(f, "id", res.ID, "a")
			equal(f, "existing", res.Existing, true)
			equal(f, "replaced", res.Replaced, false)
			equal(f, "Seq", res.Seq, 0)
		})
	}
}

func testAllowAfterFailure(f *fixture) {
	for _, state := range []core.State{core.StateRetrying, core.StateDead, core.StateCancelled} {
		f := f.otherQueue()
		f.inState(state, core.Dedup{While: core.AnyState &^ core.States(core.StateGone)})
		res := f.put(key("b", core.Dedup{OnConflict: core.AllowAfterFailure}))
		equal(f, "id", res.ID, "b")
		equal(f, "existing or replaced", res.Existing || res.Replaced, false)
		f.wantState("a", state)
		f.wantState("b", core.StatePending)
		f.refuse(key("c", core.Dedup{OnConflict: core.AllowAfterFailure}), "b")
	}
}

func testAllowAfterFailureOnly(f *fixture) {
	for _, state := range []core.State{core.StateScheduled, core.StatePending, core.StateRunning, core.StateCompleted} {
		f := f.otherQueue()
		f.inState(state, core.Dedup{While: core.AnyState &^ core.States(core.StateGone)})
		f.unchanged("a refused publish", func() {
			f.refuse(key("b", core.Dedup{OnConflict: core.AllowAfterFailure}), "a")
		})
	}
}

// The old holder lives on without the key: what becomes of it frees nothing.
func testTakesOver(f *fixture) {
	f.put(key("a", core.Dedup{}))
	f.retry(f.claim("a"), hour)
	again := key("b", core.Dedup{OnConflict: core.AllowAfterFailure})
	again.Group = "h"
	f.put(again)
	f.move(core.StateCancelled, "a")
	f.refuse(key("c", core.Dedup{}), "b")
	f.move(core.StateGone, "a")
	f.refuse(key("c", core.Dedup{}), "b")
	f.complete(f.claim("b"))
	f.put(key("c", core.Dedup{}))
}

func testReplacePending(f *fixture) {
	first := key("a", core.Dedup{})
	first.Kind, first.Payload, first.Priority, first.MaxAttempts = "old", []byte("old"), 2, 7
	first.Headers = map[string]string{"old": "1", "both": "1"}
	first.Timeout = time.Minute
	before := f.put(first)

	second := key("b", core.Dedup{OnConflict: core.ReplacePending})
	second.Kind, second.Payload, second.Priority, second.MaxAttempts = "new", []byte("new"), 4, 3
	second.Headers = map[string]string{"new": "2", "both": "2"}
	second.Timeout = 2 * time.Minute
	second.Deadline = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	second.Group = "another"
	res := f.put(second)
	equal(f, "id", res.ID, "a")
	equal(f, "replaced", res.Replaced, true)
	equal(f, "Seq", res.Seq, 0)

	job := f.job("a")
	equal(f, "kind", job.Kind, "new")
	equal(f, "payload", string(job.Payload), "new")
	equal(f, "headers", job.Headers, second.Headers)
	equal(f, "timeout", job.Timeout, 2*time.Minute)
	equal(f, "deadline", clock(job.Deadline), clock(second.Deadline))
	equal(f, "group", job.Group, "g")
	equal(f, "priority", job.Priority, 2)
	equal(f, "max attempts", job.MaxAttempts, 7)
	equal(f, "Seq of the job", job.Seq, before.Seq)
	f.wantState("b", core.StateGone)
	f.wantNoGroup("another")
	l := f.claim("a")
	equal(f, "payload in the lease", string(l.Job.Payload), "new")
}

func testReplaceKeepsPlace(f *fixture) {
	f.add("g", "first")
	f.put(key("a", core.Dedup{}))
	f.add("g", "last")
	f.put(key("b", core.Dedup{OnConflict: core.ReplacePending}))
	f.wantServed("first", "a", "last")
}

func testReplaceUnstarted(f *fixture) {
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{While: core.AnyState &^ core.States(core.StateGone)})
		again := key("b", core.Dedup{OnConflict: core.ReplacePending})
		again.Payload = []byte("new")
		if core.Unstarted.Has(state) {
			equal(f, "replaced", f.put(again).Replaced, true)
			equal(f, "payload", string(f.job("a").Payload), "new")
			continue
		}
		f.unchanged("a refused replacement", func() { f.refuse(again, "a") })
	}
}

// A holder that stands aside takes the new run time too, sooner or later.
func testReplaceScheduled(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		job := key("a", core.Dedup{})
		job.Group, job.Delay = group, 2*hour
		f.put(job)
		again := key("b", core.Dedup{OnConflict: core.ReplacePending})
		again.Group = group
		for _, delay := range []time.Duration{3 * hour, hour} {
			again.Delay = delay
			from := f.now()
			f.put(again)
			f.within("run time", f.job("a").RunAt, from.Add(delay), f.now().Add(delay))
		}
		f.claimNothing()
		again.Delay = core.MinLease
		f.put(again)
		f.passes(f.job("a").RunAt)
		f.wantServed("a")

		job.Delay = hour
		f.put(job)
		again.Delay = 0
		f.put(again)
		f.wantServed("a")
	}
}

// A strict holder is in line: its run time stands.
func testReplaceStrict(f *fixture) {
	job := key("a", core.Dedup{})
	job.Delay, job.Scheduling = hour, core.Strict
	f.put(job)
	runAt := f.job("a").RunAt
	f.put(key("b", core.Dedup{OnConflict: core.ReplacePending}))
	equal(f, "run time", clock(f.job("a").RunAt), clock(runAt))
	f.claimNothing()
}

// When the key is free, every mode just publishes.
func testConflictFreeKey(f *fixture) {
	for conflict := core.Reject; conflict <= core.ReplacePending; conflict++ {
		res := f.put(key("a", core.Dedup{OnConflict: conflict}))
		equal(f, "id", res.ID, "a")
		equal(f, "existing or replaced", res.Existing || res.Replaced, false)
		if res.Seq == 0 {
			f.Error("a new job has no Seq")
		}
		f.complete(f.claim("a"))
	}
}

// A conflict that ends well does not hinder the others of a batch.
func testConflictAllOrNothing(f *fixture) {
	f.put(key("a", core.Dedup{}))
	f.put(key("dead", core.Dedup{Key: "k2", While: core.AnyState &^ core.States(core.StateGone)}))
	f.move(core.StateDead, "dead")
	results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		key("b", core.Dedup{OnConflict: core.ReturnExisting}),
		key("c", core.Dedup{OnConflict: core.ReplacePending}),
		key("d", core.Dedup{Key: "k2", OnConflict: core.AllowAfterFailure}),
		{Group: "g", ID: "e"},
	}})
	for _, res := range results {
		f.check(res.Err)
	}
	equal(f, "existing", results[0].Existing, true)
	equal(f, "replaced", results[1].Replaced, true)
	f.wantServed("a", "d", "e")
}
