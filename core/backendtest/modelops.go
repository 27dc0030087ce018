package backendtest

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/rota-queue/rota/core"
)

// op is one random operation of the model test. It says what to do in terms
// that hold on both stores: jobs and leases are picked by numbers that count
// round those there are, delays are nothing, an hour, or so short that the
// operation waits for their end.
type op struct {
	kind  opKind
	queue int // which of the two queues

	jobs   []modelJob // publish
	whole  bool       // publish all or nothing
	max    int        // claim
	floor  int
	byTurn bool
	picks  []int // leases or jobs
	action core.Action
	delay  time.Duration
	text   string
	patch  core.Patch
	to     core.State // move
	from   core.State
	group  string
	limit  int
	act    core.GroupAct
	config core.QueueConfig
	while  core.StateSet
	force  bool
}

type opKind int

const (
	opPublish opKind = iota
	opClaim
	opSettle
	opExtend
	opExpire
	opSave
	opMoveIDs
	opMoveState
	opAct
	opPauseQueue
	opResumeQueue
	opConfigure
	opUpdate
	opPurge
	opDeleteQueue
	opBind
	opUnbind
)

// modelJob is a job to publish. old picks an id that was used before.
type modelJob struct {
	job   core.NewJob
	old   int // -1: a new id
	topic bool
}

// soon is a delay that the operation itself waits for.
const soon = 2 * time.Millisecond

// String tells the operation as a person would.
func (o op) String() string {
	q := fmt.Sprintf("q%d ", o.queue)
	switch o.kind {
	case opPublish:
		parts := []string{}
		for _, j := range o.jobs {
			parts = append(parts, j.String())
		}
		return fmt.Sprintf("%spublish whole=%v %s", q, o.whole, strings.Join(parts, " + "))
	case opClaim:
		return fmt.Sprintf("%sclaim %d floor %d by turn %v", q, o.max, o.floor, o.byTurn)
	case opSettle:
		return fmt.Sprintf("%ssettle %v %s delay %s error %q%s", q, o.picks, o.action, o.delay, o.text, patchString(o.patch))
	case opExtend:
		return fmt.Sprintf("%sextend %v", q, o.picks)
	case opExpire:
		return fmt.Sprintf("%sexpire %v", q, o.picks)
	case opSave:
		return fmt.Sprintf("%ssave %v%s", q, o.picks, patchString(o.patch))
	case opMoveIDs:
		return fmt.Sprintf("%smove %v to %s", q, o.picks, o.to)
	case opMoveState:
		return fmt.Sprintf("%smove from %s group %q limit %d to %s", q, o.from, o.group, o.limit, o.to)
	case opAct:
		return fmt.Sprintf("%sact %s on %q", q, actNames[o.act], o.group)
	case opPauseQueue:
		return q + "pause queue"
	case opResumeQueue:
		return q + "resume queue"
	case opConfigure:
		return fmt.Sprintf("%sconfigure %+v", q, o.config)
	case opUpdate:
		return fmt.Sprintf("%supdate %v while %s%s", q, o.picks, o.while, patchString(o.patch))
	case opPurge:
		return q + "purge"
	case opDeleteQueue:
		return fmt.Sprintf("%sdelete queue, force %v", q, o.force)
	case opBind:
		return q + "bind"
	case opUnbind:
		return q + "unbind"
	}
	return "?"
}

var actNames = []string{"none", "pause", "resume", "hold", "release", "skip head"}

// GoString is what rapid prints.
func (o op) GoString() string { return o.String() }

func patchString(p core.Patch) string {
	if p.Payload == nil && p.Result == nil && p.SetHeaders == nil && p.DropHeaders == nil {
		return ""
	}
	return fmt.Sprintf(" patch{payload %q result %q set %v drop %v}", p.Payload, p.Result, p.SetHeaders, p.DropHeaders)
}

// String lists only what is set.
func (j modelJob) String() string {
	parts := []string{}
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	n := j.job
	add(j.old >= 0, "old id %d", j.old)
	add(j.topic, "topic")
	add(n.Group != "", "group %s", n.Group)
	add(n.Priority != 0, "priority %d", n.Priority)
	add(n.Delay != 0, "delay %s", n.Delay)
	add(!n.RunAt.IsZero(), "at %d", n.RunAt.Year())
	add(n.MaxAttempts != 0, "attempts %d", n.MaxAttempts)
	add(n.OnFailure != 0, "failure policy %d", n.OnFailure)
	add(n.OnExhausted != 0, "exhausted policy %d", n.OnExhausted)
	add(n.Scheduling != 0, "schedule policy %d", n.Scheduling)
	add(n.Retention != 0, "retention %s", n.Retention)
	add(n.Kind != "", "kind %s", n.Kind)
	d := n.Dedup
	add(d.Key != "", "key %s while %s window %s conflict %d", d.Key, d.While, d.Window, d.OnConflict)
	return "{" + strings.Join(parts, ", ") + "}"
}

// anyOf draws one of some values; the first is the simplest.
func anyOf[V any](t *rapid.T, label string, values ...V) V {
	return rapid.SampledFrom(values).Draw(t, label)
}

// opWeights says how often each kind of operation is drawn.
var opWeights = map[opKind]int{
	opPublish: 26, opClaim: 22, opSettle: 22, opExtend: 2, opExpire: 2, opSave: 3, opMoveIDs: 8, opMoveState: 3,
	opAct: 6, opPauseQueue: 1, opResumeQueue: 2, opConfigure: 3, opUpdate: 2, opPurge: 1, opDeleteQueue: 1,
	opBind: 1, opUnbind: 1,
}

func weightedKinds() []opKind {
	var kinds []opKind
	for kind := opPublish; kind <= opUnbind; kind++ {
		for range opWeights[kind] {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// genOp draws an operation.
func genOp() *rapid.Generator[op] {
	kinds := weightedKinds()
	return rapid.Custom(func(t *rapid.T) op {
		o := op{kind: anyOf(t, "kind", kinds...), queue: anyOf(t, "queue", 0, 0, 0, 0, 0, 1)}
		switch o.kind {
		case opPublish:
			o.jobs = rapid.SliceOfN(genJob(), 1, 4).Draw(t, "jobs")
			o.whole = anyOf(t, "whole", false, false, false, true)
		case opClaim:
			o.max = anyOf(t, "max", 1, 1, 2, 3, 10)
			o.floor = anyOf(t, "floor", 0, 0, 0, 1, 2, 4)
			o.byTurn = anyOf(t, "by turn", false, true)
		case opSettle:
			o.picks = genPicks(t)
			o.action = anyOf(t, "action", core.Complete, core.Retry, core.Retry, core.Release, core.Snooze, core.Dead, core.Cancel)
			o.delay = anyOf(t, "delay", 0, 0, 0, hour, soon)
			o.text = anyOf(t, "text", "", "boom")
			o.patch = genPatch(t)
		case opExtend, opExpire:
			o.picks = genPicks(t)
		case opSave:
			o.picks = []int{anyOf(t, "pick", 0, 1, 2, 3, 4, 5, 6, 7)}
			o.patch = genPatch(t)
		case opUpdate:
			o.picks = []int{anyOf(t, "pick", 0, 1, 2, 3, 4, 5, 6, 7)}
			o.patch = genPatch(t)
			o.while = anyOf(t, "while", 0, core.Unstarted, core.Unfinished, core.Finished)
		case opMoveIDs:
			o.picks = genPicks(t)
			o.to = genTarget(t)
		case opMoveState:
			o.to = genTarget(t)
			o.from = anyOf(t, "from", core.JobStates()...)
			o.group = anyOf(t, "group", "", "a", "b")
			o.limit = anyOf(t, "limit", 1, 2, 100)
		case opAct:
			o.act = anyOf(t, "act", core.PauseGroup, core.ResumeGroup, core.ResumeGroup, core.HoldGroup,
				core.ReleaseGroup, core.ReleaseGroup, core.SkipHead)
			o.group = anyOf(t, "group", "a", "b", "c")
		case opConfigure:
			o.config = genConfig(t)
		case opDeleteQueue:
			o.force = anyOf(t, "force", false, true)
		}
		return o
	})
}

func genTarget(t *rapid.T) core.State {
	return anyOf(t, "to", core.StatePending, core.StatePending, core.StateCancelled, core.StateDead, core.StateGone)
}

func genPicks(t *rapid.T) []int {
	return rapid.SliceOfN(rapid.IntRange(0, 15), 1, 3).Draw(t, "picks")
}

func genJob() *rapid.Generator[modelJob] {
	return rapid.Custom(func(t *rapid.T) modelJob {
		j := modelJob{old: anyOf(t, "old", -1, -1, -1, -1, -1, -1, 0, 1, 2), topic: anyOf(t, "topic", false, false, false, false, true)}
		n := &j.job
		n.Group = anyOf(t, "group", "a", "a", "b", "b", "c", "")
		n.Priority = anyOf(t, "priority", 0, 0, 1, 2, 4)
		switch anyOf(t, "when", 0, 0, 0, 0, 0, 1, 2, 3) {
		case 1:
			n.Delay = hour
		case 2:
			n.Delay = soon
		case 3:
			n.RunAt = time.Date(anyOf(t, "year", 2100, 1999), 1, 1, 0, 0, 0, 0, time.UTC)
		}
		n.MaxAttempts = anyOf(t, "attempts", 0, 1, 2, 3, core.Unlimited)
		n.OnFailure = anyOf(t, "failure", core.FailureDefault, core.Block, core.Skip)
		n.OnExhausted = anyOf(t, "exhausted", core.ExhaustedDefault, core.DeadLetter, core.Hold)
		n.Scheduling = anyOf(t, "scheduling", core.ScheduleDefault, core.JoinWhenDue, core.Strict)
		n.Retention = anyOf(t, "retention", 0, 0, hour, core.None)
		n.Kind = anyOf(t, "kind", "", "k")
		n.Payload = anyOf(t, "payload", nil, []byte("p"))
		n.Headers = anyOf(t, "headers", nil, map[string]string{"h": "1"})
		if key := anyOf(t, "key", "", "", "", "x", "y"); key != "" {
			n.Dedup = core.Dedup{
				Key:        key,
				While:      anyOf(t, "while", 0, core.Unstarted, core.Unfinished, core.States(core.StateRunning), core.Unfinished|core.Finished),
				Window:     anyOf(t, "window", 0, 0, hour),
				OnConflict: anyOf(t, "conflict", core.Reject, core.ReturnExisting, core.AllowAfterFailure, core.ReplacePending),
			}
		}
		return j
	})
}

func genPatch(t *rapid.T) core.Patch {
	switch anyOf(t, "patch", 0, 0, 0, 1, 2, 3, 4) {
	case 1:
		return core.Patch{Result: []byte("r")}
	case 2:
		return core.Patch{Payload: []byte{}}
	case 3:
		return core.Patch{Payload: []byte("patched"), SetHeaders: map[string]string{"h": "2", "i": "3"}}
	case 4:
		return core.Patch{DropHeaders: []string{"h"}, SetHeaders: map[string]string{"j": ""}}
	}
	return core.Patch{}
}

func genConfig(t *rapid.T) core.QueueConfig {
	keep := func(label string) time.Duration { return anyOf(t, label, 0, hour, core.None, core.Forever) }
	return core.QueueConfig{
		HeadStart:          anyOf(t, "head start", 0, core.None, hour, core.Forever),
		OnFailure:          anyOf(t, "failure", core.FailureDefault, core.Block, core.Skip),
		OnExhausted:        anyOf(t, "exhausted", core.ExhaustedDefault, core.DeadLetter, core.Hold),
		Scheduling:         anyOf(t, "scheduling", core.ScheduleDefault, core.JoinWhenDue, core.Strict),
		MaxAttempts:        anyOf(t, "attempts", 0, 1, 2, core.Unlimited),
		CompletedRetention: keep("completed"),
		DeadRetention:      keep("dead"),
		CancelledRetention: keep("cancelled"),
		ResultTTL:          anyOf(t, "result", 0, hour, core.None),
		EventTTL:           anyOf(t, "events", hour, 0),
	}
}
