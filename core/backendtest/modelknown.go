package backendtest

import "github.com/rota-queue/rota/core"

// knownRuns are operations on which backends differed once and which chance brings
// together too seldom: every RunModel begins with them.
var knownRuns = []struct {
	name string
	ops  []op
}{
	// A batch enters at one time, and a job that it replaces enters with it: turns
	// that are equal are told apart by lane, whatever came first in the batch.
	{"ReplacedAlone", []op{
		publishOp(keyed(core.NewJob{Delay: hour})),
		publishOp(core.NewJob{}, keyed(core.NewJob{})),
		{kind: opClaim, max: 10},
	}},
	{"ReplacedInGroup", []op{
		publishOp(keyed(core.NewJob{Group: "b", Delay: hour})),
		publishOp(core.NewJob{Group: "c"}, keyed(core.NewJob{})),
		{kind: opClaim, max: 10},
	}},
	{"ReplacedAsNewHead", []op{
		publishOp(keyed(core.NewJob{Group: "b", Delay: hour})),
		publishOp(core.NewJob{Group: "b", Delay: hour, Scheduling: core.Strict}),
		publishOp(core.NewJob{}, keyed(core.NewJob{})),
		{kind: opClaim, max: 10},
	}},
	// A key may outlast its queue, and what it refuses does not make the queue anew.
	{"RefusedInDeletedQueue", []op{
		publishOp(core.NewJob{Dedup: core.Dedup{Key: "x", Window: hour}}),
		{kind: opDeleteQueue, force: true},
		publishOp(core.NewJob{Dedup: core.Dedup{Key: "x"}}),
		publishOp(core.NewJob{}),
	}},
	// A publish makes a deleted queue anew, however soon its job is gone.
	{"ClaimedInDeletedQueue", []op{
		publishOp(core.NewJob{}),
		{kind: opDeleteQueue, force: true},
		publishOp(core.NewJob{Group: "b"}),
		{kind: opClaim, max: 10},
		{kind: opSettle, picks: []int{0}, action: core.Complete},
	}},
	{"RemovedInDeletedQueue", []op{
		publishOp(core.NewJob{}),
		{kind: opDeleteQueue, force: true},
		publishOp(core.NewJob{}),
		{kind: opMoveIDs, picks: []int{1}, to: core.StateGone},
	}},
}

func publishOp(jobs ...core.NewJob) op {
	o := op{kind: opPublish}
	for _, n := range jobs {
		o.jobs = append(o.jobs, modelJob{job: n, old: -1})
	}
	return o
}

// keyed makes a job replace the one that has the key x.
func keyed(n core.NewJob) core.NewJob {
	n.Dedup = core.Dedup{Key: "x", OnConflict: core.ReplacePending}
	return n
}
