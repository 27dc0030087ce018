package backendtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// The views of the model test: what can be seen of a store, without times,
// tokens and numbers, which two stores can not have in common.

// viewError names what an error says to a caller.
func viewError(err error) string {
	if err == nil {
		return "ok"
	}
	var dup *core.DuplicateError
	var state *core.StateError
	switch {
	case errors.As(err, &dup):
		return fmt.Sprintf("duplicate key %q of %q", dup.Key, dup.ID)
	case errors.As(err, &state):
		return fmt.Sprintf("job %q is %s", state.ID, state.State)
	}
	for _, known := range []error{
		core.ErrLeaseLost, core.ErrNotFound, core.ErrQueuePaused, core.ErrWrongState, core.ErrQueueNotEmpty,
		core.ErrConflict, core.ErrNoBinding, core.ErrNotPublished, core.ErrInvalid,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "unexpected: " + err.Error()
}

// viewTime tells a time as seen from now.
func viewTime(t, now time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.After(now.Add(time.Minute)):
		return "ahead"
	}
	return "past"
}

func viewJob(j *core.Job, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s kind %q group %q p%d attempt %d/%d run %s", j.ID, j.State, j.Kind, j.Group, j.Priority, j.Attempt, j.MaxAttempts, viewTime(j.RunAt, now))
	fmt.Fprintf(&b, " payload %q result %q headers %v key %q", j.Payload, j.Result, j.Headers, j.DedupKey)
	fmt.Fprintf(&b, " keep %s policies %d%d%d", j.Retention, j.OnFailure, j.OnExhausted, j.Scheduling)
	fmt.Fprintf(&b, " created %s claimed %s finished %s", viewTime(j.CreatedAt, now), viewTime(j.ClaimedAt, now), viewTime(j.FinishedAt, now))
	if j.Lease != nil {
		fmt.Fprintf(&b, " lease of %s", j.Lease.Owner)
	}
	if j.CancelRequested {
		b.WriteString(" cancel requested")
	}
	for _, f := range j.Failures {
		fmt.Fprintf(&b, " failed(%d %q %q by %q)", f.Attempt, f.Error, f.Trace, f.Worker)
	}
	return b.String()
}

func viewGroup(g core.GroupInfo, now time.Time) string {
	lease := "no lease"
	if g.Lease != nil {
		lease = "lease of " + g.Lease.Owner + " until " + viewTime(g.Lease.Until, now)
	}
	return fmt.Sprintf("group %s p%d depth %d head %q %s due %s oldest %s paused %v held %v by %q",
		g.Group, g.Priority, g.Depth, g.Head, lease, viewTime(g.DueSince, now), viewTime(g.OldestAt, now), g.Paused, g.Held, g.HeldBy)
}

func viewLeases(res core.ClaimResult, now time.Time) string {
	lines := []string{}
	for _, l := range res.Leases {
		lines = append(lines, fmt.Sprintf("lease of group %q job %q: %s", l.Group, l.JobID, viewJob(l.Job, now)))
	}
	return strings.Join(lines, "\n")
}

// viewShort is what changes with almost every operation: counts and groups.
func viewShort(ctx context.Context, b core.Backend, queue string) (string, error) {
	info, err := b.QueueInfo(ctx, queue)
	if errors.Is(err, core.ErrNotFound) {
		return "no queue", nil
	}
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "paused %v tiers %v groups %d pending since %s\n", info.Paused, info.ByPriority, info.Groups, viewTime(info.OldestPending, info.Now))
	for _, state := range core.JobStates() {
		if n := info.Jobs[state]; n > 0 {
			fmt.Fprintf(&out, "%d %s\n", n, state)
		}
	}
	groups, err := listGroups(ctx, b, core.GroupFilter{Queue: queue, Limit: 2})
	for _, g := range groups {
		fmt.Fprintln(&out, viewGroup(g, info.Now))
	}
	return out.String(), err
}

// viewFull is all there is: settings, every job in the order of its listing,
// lines, counters and what the events say of each job.
func viewFull(ctx context.Context, b core.Backend, queue string) (string, error) {
	d, err := readQueue(ctx, b, queue)
	if err != nil || !d.Exists {
		return "no queue", err
	}
	now, err := b.Now(ctx)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "settings %+v\n", d.Info.Config)
	for _, job := range d.Jobs {
		fmt.Fprintln(&out, viewJob(job, now))
	}
	for _, g := range d.Groups {
		fmt.Fprintln(&out, viewGroup(g, now), d.Lines[g.Group])
	}
	days, err := b.Stats(ctx, queue, 2)
	if err != nil {
		return "", err
	}
	for _, n := range days {
		if n != (core.DayStats{Day: n.Day}) {
			fmt.Fprintf(&out, "completed %d failed %d dead %d cancelled %d\n", n.Completed, n.Failed, n.Dead, n.Cancelled)
		}
	}
	events, err := viewEvents(ctx, b, queue)
	return out.String() + events, err
}

// viewEvents tells what happened to each job, in order. The order of events of
// different jobs within one operation is a store's own.
func viewEvents(ctx context.Context, b core.Backend, queue string) (string, error) {
	told := map[string][]string{}
	for after := ""; ; {
		page, err := b.Events(ctx, core.EventFilter{Queue: queue, After: after, Limit: core.MaxPage})
		if err != nil {
			return "", err
		}
		for _, e := range page.Events {
			told[e.JobID] = append(told[e.JobID], fmt.Sprintf("%s(%d %q by %q in %q)", e.Kind, e.Attempt, e.Error, e.Worker, e.Group))
		}
		if len(page.Events) == 0 {
			break
		}
		after = page.Next
	}
	var out strings.Builder
	for _, id := range slices.Sorted(maps.Keys(told)) {
		fmt.Fprintf(&out, "events of %s: %s\n", id, strings.Join(told[id], " "))
	}
	return out.String(), nil
}
