package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rota-queue/rota/core"
)

const (
	// modelTime bounds how long RunModel looks for a difference.
	modelTime = 10 * time.Second
)

// RunModel plays random operations on a reference backend and on the backend
// under test and fails when they differ in anything that can be seen: results,
// errors, the order of claims, states, counts, groups, listings, events. A
// failure is shrunk to few operations. Both backends must break ties of turns
// in the same way: by lane, as docs/state-machine.md has it for memory.
func RunModel(t *testing.T, h Harness, reference func(t testing.TB) core.Backend) {
	m := &models{deadline: time.Now().Add(modelTime)}
	for i, open := range []func(testing.TB) core.Backend{reference, h.Open} {
		m.stores[i] = open(t)
		t.Cleanup(func() {
			if err := m.stores[i].Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	for _, known := range knownRuns {
		t.Run(known.name, func(t *testing.T) { m.play(t, known.ops) })
	}
	for time.Now().Before(m.deadline) && !t.Failed() {
		rapid.Check(t, m.check)
	}
	t.Logf("%d runs, %d operations", m.runs, m.ops)
}

// models are the two stores: the reference, and the one under test.
type models struct {
	stores   [2]core.Backend
	deadline time.Time
	differ   bool // a difference was found: rapid shrinks, however long it takes
	runs     int
	ops      int
}

// check is one run: a list of operations on new queues.
func (m *models) check(t *rapid.T) {
	if time.Now().After(m.deadline) && !m.differ {
		return
	}
	// Lists of lists are longer than rapid's lists, and shrink as well.
	m.play(t, slices.Concat(rapid.SliceOfN(rapid.SliceOf(genOp()), 1, -1).Draw(t, "ops")...))
}

// failer is the part of a test that a run needs, of rapid or not.
type failer interface {
	Fatalf(format string, args ...any)
}

// play does operations on new queues and compares what can be seen after each.
func (m *models) play(t failer, ops []op) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	topic := uniqueName()
	r := &modelRun{models: m, t: t, ctx: ctx, topic: topic, queues: [2]string{topic + "@a", topic + "@b"}}
	defer r.remove()
	for i, o := range ops {
		r.step = fmt.Sprintf("step %d: %s", i, o)
		r.apply(o)
		r.compareViews(viewShort, r.queues[o.queue])
	}
	r.step = "the end"
	r.compareViews(viewFull, r.queues[:]...)
	m.runs++
	m.ops += len(ops)
}

// modelRun is one run of operations.
type modelRun struct {
	*models
	t      failer
	ctx    context.Context
	topic  string
	queues [2]string
	step   string
	ids    []string        // every id that was published
	leases [2][]leasePair  // every lease that was given, by queue
	live   [2]map[int]bool // those that nobody has settled yet
}

// leasePair is one lease on both stores.
type leasePair [2]core.Lease

func (r *modelRun) remove() {
	for _, b := range r.stores {
		for _, q := range r.queues {
			_ = b.DeleteQueue(r.ctx, q, true) // it may never have been made
		}
	}
}

// fail reports a difference.
func (r *modelRun) fail(format string, args ...any) {
	r.differ = true
	r.t.Fatalf("%s\n%s", r.step, fmt.Sprintf(format, args...))
}

// both does the same on both stores, each of which tells what it saw.
func (r *modelRun) both(do func(i int, b core.Backend) string) {
	want, got := do(0, r.stores[0]), do(1, r.stores[1])
	if got != want {
		r.fail("the reference (-) and the backend under test (+) differ:\n%s", difference(want, got))
	}
}

// difference tells the lines that only one of two texts has.
func difference(want, got string) string {
	var lines []string
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	only := func(sign string, these, others []string) {
		for _, line := range these {
			if !slices.Contains(others, line) {
				lines = append(lines, sign+line)
			}
		}
	}
	only("- ", a, b)
	only("+ ", b, a)
	if len(lines) == 0 {
		return "the same lines in another order\n- " + want + "\n+ " + got
	}
	return strings.Join(lines, "\n")
}

func (r *modelRun) compareViews(view func(context.Context, core.Backend, string) (string, error), queues ...string) {
	for _, q := range queues {
		r.both(func(_ int, b core.Backend) string {
			text, err := view(r.ctx, b, q)
			if err != nil {
				r.fail("looking at %s: %v", q, err)
			}
			return text
		})
	}
}

// wait waits until both stores' clocks have passed a time of their own.
func (r *modelRun) wait(until [2]time.Time) {
	for i, b := range r.stores {
		for {
			now, err := b.Now(r.ctx)
			if err != nil {
				r.fail("reading the clock: %v", err)
			}
			left := until[i].Sub(now)
			if left < 0 {
				break
			}
			time.Sleep(left + time.Millisecond)
		}
	}
}

// waitFrom waits until d has passed on both stores from now.
func (r *modelRun) waitFrom(d time.Duration) {
	var until [2]time.Time
	for i, b := range r.stores {
		now, err := b.Now(r.ctx)
		if err != nil {
			r.fail("reading the clock: %v", err)
		}
		until[i] = now.Add(d)
	}
	r.wait(until)
}
