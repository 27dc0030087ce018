package backendtest

import (
	"github.com/rota-queue/rota/core"
)

// batchTests are about duplicates within one batch and about ids.
var batchTests = []test{
	{"InOrder", testDedupInBatch},
	{"AllOrNothing", testAllOrNothing},
	{"AllOrNothingAmongThemselves", testAllOrNothingInBatch},
	{"AllOrNothingModes", testAllOrNothingModes},
	{"AllOrNothingBesideStored", testAllOrNothingBesideStored},
	{"AllOrNothingInDeletedQueue", testAllOrNothingDeletedQueue},
	{"QueuesOfTheRefused", testQueuesOfRefused},
	{"IDTaken", testIDTaken},
	{"IDTakenBeforeKey", testIDBeforeKey},
}

// The jobs of a batch see each other in order.
func testDedupInBatch(f *fixture) {
	results := f.tryPublish(
		key("a", core.Dedup{}), key("b", core.Dedup{}), key("c", core.Dedup{Key: "k2"}),
		key("d", core.Dedup{OnConflict: core.ReturnExisting}),
		core.NewJob{Group: "g", ID: "a"}, core.NewJob{Group: "g", ID: "e"},
	)
	f.check(results[0].Err)
	f.wantDuplicate(results[1].Err, "k", "a")
	f.check(results[2].Err)
	f.check(results[3].Err)
	equal(f, "existing", results[3].Existing, true)
	equal(f, "id", results[3].ID, "a")
	f.wantDuplicate(results[4].Err, "", "a")
	f.check(results[5].Err)
	f.wantServed("a", "c", "e")
}

func testAllOrNothing(f *fixture) {
	f.put(key("a", core.Dedup{}))
	f.unchanged("a refused batch", func() {
		for _, refused := range []core.NewJob{key("x", core.Dedup{}), {ID: "a"}} {
			results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
				{Group: "g", ID: "b"}, key("c", core.Dedup{Key: "k2"}), refused, {Group: "h", ID: "d"},
			}})
			for i, res := range results {
				if i == 2 {
					f.wantDuplicate(res.Err, refused.Dedup.Key, "a")
				} else {
					f.wantErr(res.Err, core.ErrNotPublished)
				}
			}
		}
	})
	f.put(key("c", core.Dedup{Key: "k2"})) // its key was not taken either
	results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		{Group: "g", ID: "b"}, key("d", core.Dedup{Key: "k3"}), {Group: "h", ID: "e"},
	}})
	for _, res := range results {
		f.check(res.Err)
	}
	f.wantServed("a", "e", "c", "b", "d")
}

func testAllOrNothingInBatch(f *fixture) {
	for _, again := range []core.NewJob{key("b", core.Dedup{}), {ID: "a"}} {
		results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
			key("a", core.Dedup{}), again, {Group: "g", ID: "c"},
		}})
		f.wantErr(results[0].Err, core.ErrNotPublished)
		f.wantDuplicate(results[1].Err, again.Dedup.Key, "a")
		f.wantErr(results[2].Err, core.ErrNotPublished)
		f.claimNothing()
	}
	f.put(key("d", core.Dedup{}))
}

// Within an all-or-nothing batch a key is taken as it is elsewhere: by the first
// job that is stored, in the states of its scope, and by mode.
func testAllOrNothingModes(f *fixture) {
	second := func(conflict core.Conflict) core.NewJob { return key("b", core.Dedup{OnConflict: conflict}) }
	for name, c := range map[string]struct {
		batch  []core.NewJob
		served []string // nil: all is refused, and all but the first names it
	}{
		"reject twice":            {[]core.NewJob{key("a", core.Dedup{}), second(core.Reject), key("c", core.Dedup{})}, nil},
		"return existing":         {[]core.NewJob{key("a", core.Dedup{}), second(core.ReturnExisting)}, []string{"a"}},
		"allow after failure":     {[]core.NewJob{key("a", core.Dedup{}), second(core.AllowAfterFailure)}, nil},
		"replace pending":         {[]core.NewJob{key("a", core.Dedup{}), second(core.ReplacePending)}, []string{"a"}},
		"not in the scope":        {[]core.NewJob{key("a", core.Dedup{While: core.States(core.StateRunning)}), second(core.Reject)}, []string{"a", "b"}},
		"in the scope":            {[]core.NewJob{key("a", core.Dedup{While: core.Unstarted}), second(core.Reject)}, nil},
		"another after that mode": {[]core.NewJob{key("a", core.Dedup{}), second(core.ReturnExisting), key("c", core.Dedup{})}, nil},
	} {
		f := f.otherQueue()
		f.configure(core.QueueConfig{})
		f.Log(name)
		results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: c.batch})
		if c.served != nil {
			for _, res := range results {
				f.check(res.Err)
			}
			f.wantServed(c.served...)
			continue
		}
		f.claimNothing()
		f.wantErr(results[0].Err, core.ErrNotPublished)
		last := len(results) - 1
		f.wantDuplicate(results[last].Err, "k", "a")
		for i := 1; i < last; i++ {
			if c.batch[i].Dedup.OnConflict == core.Reject {
				f.wantDuplicate(results[i].Err, "k", "a")
			} else {
				f.wantErr(results[i].Err, core.ErrNotPublished)
			}
		}
	}
}

// A job of the batch that takes a key over from a stored one is who holds it for
// those behind; a job that meets an existing one takes nothing.
func testAllOrNothingBesideStored(f *fixture) {
	f.configure(core.QueueConfig{})
	f.put(key("a", core.Dedup{While: core.AnyState}))
	f.kill(f.claim("a"))
	results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		key("b", core.Dedup{OnConflict: core.AllowAfterFailure}), key("c", core.Dedup{}),
	}})
	f.wantErr(results[0].Err, core.ErrNotPublished)
	f.wantDuplicate(results[1].Err, "k", "b")

	results = f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		key("b", core.Dedup{OnConflict: core.ReturnExisting}), key("c", core.Dedup{}),
	}})
	f.wantErr(results[0].Err, core.ErrNotPublished)
	f.wantDuplicate(results[1].Err, "k", "a")
	f.claimNothing()
}

// A window outlasts the queue for an all-or-nothing batch as well.
func testAllOrNothingDeletedQueue(f *fixture) {
	f.put(key("a", core.Dedup{Window: hour}))
	f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
	results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		{Group: "g", ID: "b"}, key("c", core.Dedup{}),
	}})
	f.wantErr(results[0].Err, core.ErrNotPublished)
	f.wantDuplicate(results[1].Err, "k", "a")
	f.claimNothing()
}

// A refused job's result names the queue that refused it, in an all-or-nothing
// batch as in any other; one that could have been stored went to none.
func testQueuesOfRefused(f *fixture) {
	f.put(key("a", core.Dedup{}))
	topic, bound := f.topic(2)
	bound[1].put(core.NewJob{ID: "taken"})
	for _, c := range []struct {
		job core.NewJob
		in  string
	}{
		{core.NewJob{ID: "a"}, f.queue},
		{key("x", core.Dedup{}), f.queue},
		{core.NewJob{Topic: topic, ID: "taken"}, bound[1].queue},
	} {
		free := core.NewJob{ID: "b"}
		if c.job.Topic != "" {
			free.Queue = bound[0].queue
		}
		equal(f, "queues", f.tryPublish(c.job)[0].Queues, []string{c.in})
		results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{free, c.job}})
		f.wantErr(results[0].Err, core.ErrNotPublished)
		equal(f, "number of queues", len(results[0].Queues), 0)
		equal(f, "queues in an all-or-nothing batch", results[1].Queues, []string{c.in})
	}
	// Alone in its batch too.
	results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{{ID: "a"}}})
	equal(f, "queues of the only job", results[0].Queues, []string{f.queue})
}

// An id is taken for as long as the queue holds the job, finished or not.
func testIDTaken(f *fixture) {
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{})
		f.unchanged("a taken id", func() {
			for _, job := range []core.NewJob{{ID: "a"}, {Group: "h", ID: "a"}, {ID: "a", Delay: hour}} {
				f.wantDuplicate(f.tryPublish(job)[0].Err, "", "a")
			}
		})
		if state == core.StateRunning {
			continue
		}
		f.move(core.StateGone, "a")
		f.put(core.NewJob{ID: "a"})
	}
}

// The id is checked first, whatever the dedup would say.
func testIDBeforeKey(f *fixture) {
	for conflict := core.Reject; conflict <= core.ReplacePending; conflict++ {
		f := f.otherQueue()
		f.put(key("a", core.Dedup{}))
		f.unchanged("a taken id", func() {
			f.wantDuplicate(f.tryPublish(key("a", core.Dedup{OnConflict: conflict}))[0].Err, "", "a")
			f.wantDuplicate(f.tryPublish(key("a", core.Dedup{Key: "free", OnConflict: conflict}))[0].Err, "", "a")
		})
		f.put(key("b", core.Dedup{Key: "free"})) // not taken by the refused job
	}
}
