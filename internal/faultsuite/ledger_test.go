package faultsuite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rota-queue/rota/core"
)

// run is a small history that breaks no rule: of four jobs a and b were published
// to group g by one call, c to skip-0 and d to no group by another. a failed once
// and completed; b was given back, then its worker died, then it died; c was
// retried; d was cancelled. x was tried and is not known.
type run struct {
	Ledger
	clock int64
}

const second = int64(1e9)

func goodRun(kept bool) *run {
	r := &run{Ledger: Ledger{Kept: kept}}
	r.try("p1", 1, "a", "g")
	r.try("p1", 1, "b", "g")
	r.acked("p1", "a", "g", 10)
	r.acked("p1", "b", "g", 11)
	r.try("p2", 1, "c", "skip-0")
	r.try("p2", 2, "d", "")
	r.try("p2", 3, "x", "")
	r.acked("p2", "c", "skip-0", 20)
	r.acked("p2", "d", "", 21)

	r.claim("a", "g", 10, 100, 1)
	r.extend("a", "g", 100)
	r.settle("a", "g", 100, core.Retry, core.StateRetrying, "")
	r.claim("a", "g", 10, 101, 2)
	r.settle("a", "g", 101, core.Complete, r.completed(), "")
	r.claim("b", "g", 11, 102, 1)
	r.settle("b", "g", 102, core.Release, core.StatePending, "")
	r.claim("b", "g", 11, 103, 1)
	r.pass(2)
	r.claim("b", "g", 11, 104, 2)
	r.settle("b", "g", 103, core.Complete, 0, Lost)
	r.settle("b", "g", 104, core.Dead, core.StateDead, "")
	r.claim("c", "skip-0", 20, 110, 1)
	r.settle("c", "skip-0", 110, core.Complete, 0, Unknown+"cut")
	r.claim("d", "", 21, 120, 1)
	r.settle("d", "", 120, core.Cancel, core.StateCancelled, "")

	r.store("b", "g", 11, core.StateDead, 2)
	r.store("d", "", 21, core.StateCancelled, 1)
	if kept {
		r.store("a", "g", 10, core.StateCompleted, 2)
		r.store("c", "skip-0", 20, core.StateCompleted, 1)
	}
	r.Totals = core.DayStats{Completed: 2, Dead: 1, Cancelled: 1}
	if kept {
		r.tell("a", core.EventEnqueued, core.EventStarted, core.EventRetried, core.EventStarted, core.EventCompleted)
		r.tell("b", core.EventEnqueued, core.EventStarted, core.EventReleased, core.EventStarted,
			core.EventLeaseLost, core.EventStarted, core.EventDead)
		r.tell("c", core.EventEnqueued, core.EventStarted, core.EventCompleted)
		r.tell("d", core.EventEnqueued, core.EventStarted, core.EventCancelled)
	}
	return r
}

// tell adds events of a job to the stream.
func (r *run) tell(job string, kinds ...core.EventKind) {
	for _, k := range kinds {
		r.Stream = append(r.Stream, core.Event{JobID: job, Kind: k})
	}
}

func (r *run) completed() core.State {
	if r.Kept {
		return core.StateCompleted
	}
	return core.StateGone
}

func (r *run) tick() int64 {
	r.clock += second / 100
	return r.clock
}

func (r *run) pass(seconds int64) { r.clock += seconds * second }

func (r *run) add(e Event) { r.Events = append(r.Events, e) }

func (r *run) try(proc string, batch int, job, group string) {
	r.add(Event{Proc: proc, Kind: Try, Done: r.tick(), Job: job, Group: group, Batch: batch})
}

func (r *run) acked(proc, job, group string, seq int64) {
	r.add(Event{Proc: proc, Kind: Acked, Sent: r.tick(), Done: r.tick(), Job: job, Group: group, Seq: seq})
}

func token(job string, fence int64) string { return fmt.Sprint(job, fence) }

func (r *run) claim(job, group string, seq, fence int64, attempt int) {
	r.add(Event{
		Proc: "w", Kind: Claimed, Sent: r.tick(), Done: r.tick(), Job: job, Group: group, Seq: seq,
		Token: token(job, fence), Fence: fence, Attempt: attempt, Lease: second,
	})
}

func (r *run) settle(job, group string, fence int64, action core.Action, state core.State, err string) {
	e := Event{Proc: "w", Kind: Settling, Sent: r.tick(), Job: job, Group: group, Token: token(job, fence), Action: action}
	r.add(e)
	e.Kind, e.Done, e.State, e.Err = Settled, r.tick(), state, err
	r.add(e)
}

func (r *run) extend(job, group string, fence int64) {
	r.add(Event{Proc: "w", Kind: Wrote, Sent: r.tick(), Done: r.tick(), Job: job, Group: group, Token: token(job, fence), Lease: second})
}

func (r *run) store(id, group string, seq int64, state core.State, attempt int) {
	r.Jobs = append(r.Jobs, &core.Job{ID: id, Group: group, Seq: seq, State: state, Attempt: attempt, MaxAttempts: 25})
	if r.Info.Jobs == nil {
		r.Info.Jobs = map[core.State]int64{}
	}
	r.Info.Jobs[state]++
}

// find gives the i-th event of a kind and job, to be changed.
func (r *run) find(kind Kind, job string, i int) *Event {
	for n := range r.Events {
		if e := &r.Events[n]; e.Kind == kind && e.Job == job {
			if i == 0 {
				return e
			}
			i--
		}
	}
	panic("no such event")
}

func (r *run) job(id string) *core.Job {
	return r.Jobs[slices.IndexFunc(r.Jobs, func(j *core.Job) bool { return j.ID == id })]
}

// drop takes a job out of the store, with its count.
func (r *run) drop(id string) {
	r.Info.Jobs[r.job(id).State]--
	r.Jobs = slices.DeleteFunc(r.Jobs, func(j *core.Job) bool { return j.ID == id })
}

func TestLedgerFindsNothingInAGoodRun(t *testing.T) {
	for _, kept := range []bool{true, false} {
		if v := goodRun(kept).Check(); len(v) > 0 {
			t.Errorf("kept %t: %v", kept, v)
		}
	}
	if v := (&Ledger{}).Check(); len(v) > 0 {
		t.Errorf("empty: %v", v)
	}
}

// What two processes write may be read in any order.
func TestLedgerNeedsNoOrderOfLines(t *testing.T) {
	r := goodRun(true)
	slices.Reverse(r.Events)
	if v := r.Check(); len(v) > 0 {
		t.Error(v)
	}
}

// Each planted violation is seen, by the rule it breaks.
func TestLedgerSeesPlantedViolations(t *testing.T) {
	for _, test := range []struct {
		name, rule, text string
		plant            func(*run)
	}{
		{"reported by a process", "bad", "broken", func(r *run) {
			r.add(Event{Proc: "w", Kind: Bad, Text: "broken"})
		}},
		{"no event", "bad", "not an event", func(r *run) { r.add(parse("w", "half a li")) }},
		{"token out of nowhere", "bad", "nobody claimed", func(r *run) { r.extend("a", "g", 999) }},
		{"invented job", "alien", "y", func(r *run) { r.store("y", "", 50, core.StateCompleted, 1); r.Totals.Completed++ }},
		{"claimed in another group", "alien", "group \"h\"", func(r *run) { r.find(Claimed, "d", 0).Group = "h" }},
		{"stored in another group", "alien", "stored in group \"h\"", func(r *run) { r.job("d").Group = "h" }},
		{"acknowledged job vanished", "lost", "job y", func(r *run) { r.try("p3", 1, "y", ""); r.acked("p3", "y", "", 60) }},
		{"dead job vanished", "lost", "job b", func(r *run) { r.drop("b"); r.Totals.Dead-- }},
		{"claimed job vanished", "lost", "job x", func(r *run) { r.claim("x", "", 70, 200, 1) }},
		{"completed job vanished", "lost", "job a", func(r *run) { r.drop("a") }},
		{"torn batch", "batch", "job b", func(r *run) {
			r.try("p1", 1, "y", "g")
		}},
		{"completed twice", "doubled", "handed out with fence 105 after it ended", func(r *run) {
			r.claim("a", "g", 10, 105, 3)
			r.settle("a", "g", 105, core.Complete, core.StateCompleted, "")
		}},
		{"dead and completed", "doubled", "job b", func(r *run) {
			r.claim("b", "g", 11, 105, 3)
			r.settle("b", "g", 105, core.Complete, core.StateCompleted, "")
		}},
		{"one lease settled twice", "doubled", "settled 2 times", func(r *run) {
			r.settle("d", "", 120, core.Cancel, core.StateCancelled, "")
		}},
		{"listed twice", "doubled", "lists job d twice", func(r *run) { r.store("d", "", 21, core.StateCancelled, 1) }},
		{"Seq against publishing", "order", "acknowledged with Seq", func(r *run) {
			r.find(Acked, "d", 0).Seq, r.find(Claimed, "d", 0).Seq, r.job("d").Seq = 5, 5, 5
		}},
		{"Seq against the batch", "order", "of one batch", func(r *run) {
			for _, id := range []string{"a", "b"} {
				seq := map[string]int64{"a": 11, "b": 10}[id]
				r.job(id).Seq = seq
				for n := range r.Events {
					if e := &r.Events[n]; e.Job == id && e.Seq != 0 {
						e.Seq = seq
					}
				}
			}
		}},
		{"same Seq twice", "order", "same Seq", func(r *run) {
			r.find(Acked, "d", 0).Seq, r.find(Claimed, "d", 0).Seq, r.job("d").Seq = 20, 20, 20
		}},
		{"Seq that changes", "order", "and Seq", func(r *run) { r.find(Claimed, "a", 1).Seq = 12 }},
		{"overtaken in the group", "order", "handed out with fence", func(r *run) {
			// b between the two leases of a.
			e := r.find(Claimed, "b", 0)
			at := r.find(Claimed, "a", 1)
			e.Fence, at.Fence = at.Fence, e.Fence
		}},
		{"skipped job overtakes on its first lease", "order", "job c", func(r *run) {
			r.try("p3", 1, "e", "skip-0")
			r.acked("p3", "e", "skip-0", 30)
			r.claim("e", "skip-0", 30, 109, 1)
			r.settle("e", "skip-0", 109, core.Complete, core.StateCompleted, "")
			r.store("e", "skip-0", 30, core.StateCompleted, 1)
			r.Totals.Completed++
		}},
		{"leased twice at a time", "exclusive", "job b with fence 103 held it", func(r *run) {
			e := r.find(Claimed, "b", 2)
			e.Sent -= 2 * second
			e.Done -= 2 * second
		}},
		{"extended lease taken over", "exclusive", "job b with fence 103 held it", func(r *run) {
			r.add(Event{
				Proc: "w", Kind: Wrote, Job: "b", Group: "g", Token: token("b", 103), Lease: 3 * second,
				Sent: r.find(Claimed, "b", 1).Done + 1, Done: r.find(Claimed, "b", 1).Done + 2,
			})
		}},
		{"stale settle accepted", "stale", "the complete of job b with fence 103", func(r *run) {
			e := r.find(Settled, "b", 1)
			e.Err, e.State = "", core.StateCompleted
		}},
		{"stale extension accepted", "stale", "a write to job b with fence 103", func(r *run) { r.extend("b", "g", 103) }},
		{"fence twice", "fence", "twice", func(r *run) { r.find(Claimed, "b", 0).Fence = 101 }},
		{"fence that falls", "fence", "after a greater one", func(r *run) { r.find(Claimed, "b", 2).Fence = 102 - 50 }},
		{"token twice", "fence", "token", func(r *run) { r.find(Claimed, "b", 0).Token = token("a", 100) }},
		{"attempt not counted", "attempts", "job a has attempt 1", func(r *run) { r.find(Claimed, "a", 1).Attempt = 1 }},
		{"expired attempt not counted", "attempts", "job b has attempt 1", func(r *run) { r.find(Claimed, "b", 2).Attempt = 1 }},
		{"another end than acknowledged", "state", "acknowledged as cancelled", func(r *run) { r.end("d", core.StateCompleted) }},
		{"an end nobody asked for", "state", "nobody asked", func(r *run) { r.end("c", core.StateDead) }},
		{"completed without a lease", "state", "nobody asked", func(r *run) {
			r.store("x", "", 70, core.StateCompleted, 0)
			r.Totals.Completed++
		}},
		{"unfinished at the end", "stranded", "job x is pending", func(r *run) { r.store("x", "", 70, core.StatePending, 0) }},
		{"ended twice in the stream", "events", "[completed completed]", func(r *run) { r.tell("a", core.EventCompleted) }},
		{"another end in the stream", "events", "[dead]", func(r *run) { r.Stream[len(r.Stream)-1].Kind = core.EventDead }},
		{"started after its end in the stream", "events", "started after", func(r *run) { r.tell("a", core.EventStarted) }},
		{"enqueued twice", "events", "enqueued 2", func(r *run) { r.tell("a", core.EventEnqueued) }},
		{"start not counted", "events", "3 times and given back 2", func(r *run) { r.tell("b", core.EventReleased) }},
		{"start not told", "events", "started 1 times and claimed 2", func(r *run) {
			r.Stream = slices.Delete(r.Stream, 3, 4)
			r.job("a").Attempt = 1
		}},
		{"stream of an invented job", "events", "job y", func(r *run) { r.tell("y", core.EventEnqueued) }},
		{"stream of a job that is gone", "events", "job x, which the store", func(r *run) { r.tell("x", core.EventEnqueued) }},
		{"no stream of a job", "events", "nothing of job d", func(r *run) { r.Stream = r.Stream[:len(r.Stream)-3] }},
		{"count of a state", "counts", "state dead", func(r *run) { r.Info.Jobs[core.StateDead]++ }},
		{"count of a state that has none", "counts", "state running", func(r *run) { r.Info.Jobs[core.StateRunning] = 1 }},
		{"count by priority", "counts", "by priority", func(r *run) { r.Info.ByPriority[2] = -1 }},
		{"count of groups", "counts", "1 groups", func(r *run) { r.Info.Groups = 1 }},
		{"completed counted twice", "counts", "3 completed", func(r *run) { r.Totals.Completed++ }},
		{"dead not counted", "counts", "0 dead", func(r *run) { r.Totals.Dead = 0 }},
		{"cancelled counted twice", "counts", "2 cancelled", func(r *run) { r.Totals.Cancelled++ }},
	} {
		r := goodRun(true)
		test.plant(r)
		violations := r.Check()
		if !slices.ContainsFunc(violations, func(v Violation) bool {
			return v.Rule == test.rule && strings.Contains(v.Text, test.text)
		}) {
			t.Errorf("%s: want a violation of %q about %q, got %v", test.name, test.rule, test.text, violations)
		}
	}
}

// end changes the state in which the store shows a job.
func (r *run) end(id string, state core.State) {
	job := r.job(id)
	r.Info.Jobs[job.State]--
	job.State = state
	r.Info.Jobs[state]++
}

// Where completed jobs are not kept, a job that vanished without the completion
// of its last lease is still seen.
func TestLedgerOfAQueueThatKeepsNothing(t *testing.T) {
	for name, plant := range map[string]func(*run){
		"retried":  func(r *run) { r.find(Settling, "a", 1).Action, r.find(Settled, "a", 1).Action = core.Retry, core.Retry },
		"refused":  func(r *run) { r.find(Settled, "c", 0).Err = Lost },
		"unheard":  func(r *run) { r.try("p3", 1, "y", ""); r.acked("p3", "y", "", 60) },
		"tried on": func(r *run) { r.claim("a", "g", 10, 105, 3) },
	} {
		r := goodRun(false)
		plant(r)
		rules := map[string]bool{}
		for _, v := range r.Check() {
			rules[v.Rule] = true
		}
		if !rules["lost"] && !rules["doubled"] {
			t.Errorf("%s: got %v", name, rules)
		}
	}
}

// What may be is not taken for a violation.
func TestLedgerAllowsWhatMayBe(t *testing.T) {
	for name, plant := range map[string]func(*run){
		"a step of the clock ends leases": func(r *run) {
			e := r.find(Claimed, "b", 2)
			e.Sent -= 2 * second
			e.Done -= 2 * second
			r.Steps = []int64{r.find(Claimed, "b", 1).Done + 1}
		},
		"a refused job of a batch of its own": func(r *run) { r.try("p3", 9, "y", "g") },
		"an open settle of a lease that was taken over": func(r *run) {
			r.find(Settled, "b", 1).Err = Unknown + "cut"
		},
		"a lost answer and a refused repetition": func(r *run) {
			r.settle("c", "skip-0", 110, core.Complete, 0, Lost)
		},
		"a skipped job that comes back": func(r *run) {
			r.try("p3", 1, "e", "skip-0")
			r.acked("p3", "e", "skip-0", 30)
			r.find(Settled, "c", 0).Action, r.find(Settling, "c", 0).Action = core.Retry, core.Retry
			r.claim("e", "skip-0", 30, 111, 1)
			r.settle("e", "skip-0", 111, core.Complete, core.StateCompleted, "")
			r.claim("c", "skip-0", 20, 112, 2)
			r.settle("c", "skip-0", 112, core.Complete, core.StateCompleted, "")
			r.store("e", "skip-0", 30, core.StateCompleted, 1)
			r.Totals.Completed++
		},
		"attempts of leases whose lines were lost": func(r *run) { r.find(Claimed, "a", 1).Attempt = 4 },
		"dead because its attempts are used up": func(r *run) {
			r.end("c", core.StateDead)
			r.job("c").Attempt = r.job("c").MaxAttempts
			r.Totals = core.DayStats{Completed: 1, Dead: 2, Cancelled: 1}
		},
	} {
		r := goodRun(true)
		r.Stream = nil // has tests of its own
		plant(r)
		if v := r.Check(); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestFirstOfEachRule(t *testing.T) {
	some, n := first([]Violation{{"a", "", "1"}, {"b", "", "2"}, {"a", "", "3"}})
	if n != 3 || len(some) != 2 || some[0].Text != "1" || some[1].String() != "b: 2" {
		t.Errorf("got %v, %d", some, n)
	}
}
