package backendtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

// ViolationKind is a way to break a promise.
type ViolationKind string

// What a Checker finds.
const (
	// Lost: a publish was acknowledged, but the job is neither done nor stored (P4).
	Lost ViolationKind = "lost"
	// Stranded: the job is stored, but when all was claimed nobody got it (P4).
	Stranded ViolationKind = "stranded"
	// Doubled: the job came back after the settle that ended it was accepted (P3).
	Doubled ViolationKind = "doubled"
	// Invented: a job was handed out that nobody published.
	Invented ViolationKind = "invented"
	// Overlap: two leases of a group were live at one time (P2).
	Overlap ViolationKind = "overlap"
	// OutOfOrder: a job of a group started before one in front of it (P1).
	OutOfOrder ViolationKind = "out of order"
	// StaleAccepted: a write was accepted after the group had been handed to the
	// next holder (P3).
	StaleAccepted ViolationKind = "stale write accepted"
	// FenceBack: a fence did not grow, or a token was given twice (P3).
	FenceBack ViolationKind = "fence did not grow"
	// Miscounted: an attempt was not counted, or a released one was (P5).
	Miscounted ViolationKind = "attempts miscounted"
)

// Violation is one broken promise.
type Violation struct {
	Kind   ViolationKind
	Queue  string
	Group  string
	JobID  string
	Detail string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: job %q of group %q in queue %q: %s", v.Kind, v.JobID, v.Group, v.Queue, v.Detail)
}

// findings collects violations.
type findings struct{ list []Violation }

func (f *findings) add(kind ViolationKind, ref core.LeaseRef, format string, args ...any) {
	f.list = append(f.list, Violation{
		Kind: kind, Queue: ref.Queue, Group: ref.Group, JobID: ref.JobID, Detail: fmt.Sprintf(format, args...),
	})
}

// violations applies all rules. left is what the store still holds.
func (c *Checker) violations(left map[jobName]core.State) []Violation {
	f := &findings{}
	lanes := map[[3]string][]*ledgerLease{}
	byJob := map[jobName][]*ledgerLease{}
	tokens := map[string]bool{}
	for _, l := range c.leases {
		lane := [3]string{l.Queue, l.Group, ""}
		if l.Group == "" {
			lane[2] = l.JobID
		}
		lanes[lane] = append(lanes[lane], l)
		name := jobName{l.Queue, l.JobID}
		byJob[name] = append(byJob[name], l)
		if tokens[l.Token] {
			f.add(FenceBack, l.LeaseRef, "token %q was given twice", l.Token)
		}
		tokens[l.Token] = true
		if c.jobs[name] == nil {
			f.add(Invented, l.LeaseRef, "nobody published it")
		}
	}
	for _, lane := range lanes {
		slices.SortFunc(lane, func(a, b *ledgerLease) int { return cmp.Compare(a.fence, b.fence) })
		f.fences(lane)
		f.exclusive(lane)
		c.places(f, lane)
		c.starts(f, lane)
	}
	for name, job := range c.jobs {
		state, stored := left[name]
		f.ends(job, byJob[name], state, stored)
	}
	slices.SortFunc(f.list, func(a, b Violation) int { return cmp.Compare(a.String(), b.String()) })
	return f.list
}

const never = time.Duration(math.MaxInt64)

// laterLeast gives for each lease the least value of those behind it.
func laterLeast(lane []*ledgerLease, value func(*ledgerLease) time.Duration) []time.Duration {
	least := make([]time.Duration, len(lane)+1)
	least[len(lane)] = never
	for i := len(lane) - 1; i >= 0; i-- {
		least[i] = min(least[i+1], value(lane[i]))
	}
	return least[1:]
}

// fences: of two claims of which one was answered before the other was sent, the
// later has the greater fence.
func (f *findings) fences(lane []*ledgerLease) {
	answered := laterLeast(lane, func(l *ledgerLease) time.Duration { return l.claim.returned })
	for i, l := range lane {
		if answered[i] < l.claim.sent {
			f.add(FenceBack, l.LeaseRef, "fence %d was given after a greater one", l.fence)
		}
		if i > 0 && lane[i-1].fence == l.fence {
			f.add(FenceBack, l.LeaseRef, "fence %d was given twice", l.fence)
		}
	}
}

// exclusive: whatever a holder wrote, it wrote before the next one had the group;
// and the next one had it when the lease had been settled or had run out.
func (f *findings) exclusive(lane []*ledgerLease) {
	taken := laterLeast(lane, func(l *ledgerLease) time.Duration { return l.claim.returned })
	for i, l := range lane {
		ranOut := i+1 < len(lane) && !lane[i+1].claimedAt.Before(l.until)
		for _, w := range l.writes {
			if !w.accepted || w.sent <= taken[i] {
				continue
			}
			if w.settles && !ranOut {
				f.add(Overlap, l.LeaseRef, "%s was accepted, the lease had not run out, and yet job %q had been handed out", w.name, lane[i+1].JobID)
			} else {
				f.add(StaleAccepted, l.LeaseRef, "%s was accepted after job %q had been handed out", w.name, lane[i+1].JobID)
			}
		}
		if i+1 < len(lane) && !ranOut && l.settled() == nil && !l.unsure() {
			f.add(Overlap, l.LeaseRef, "job %q was handed out %s before the lease ran out", lane[i+1].JobID, l.until.Sub(lane[i+1].claimedAt))
		}
	}
}

// stays says that a job was still in line when its lease ended.
func (l *ledgerLease) stays() bool {
	w := l.settled()
	switch {
	case l.unsure():
		return false // unknown
	case w == nil: // the lease ran out
		return l.max == core.Unlimited || l.attempt < l.max
	case w.state == core.StatePending:
		return true
	case w.state == core.StateRetrying || w.state == core.StateScheduled:
		return !l.skips
	}
	return false
}

// places: while a job is in line, none behind it runs, and each claim but those
// given back counts. Where a job that was delayed stands the ledger can not tell.
func (c *Checker) places(f *findings, lane []*ledgerLease) {
	delayed := func(l *ledgerLease) bool {
		job := c.jobs[jobName{l.Queue, l.JobID}]
		return job == nil || job.delayed
	}
	for i := 1; i < len(lane); i++ {
		l, next := lane[i-1], lane[i]
		if l.JobID == next.JobID {
			f.attempts(l, next)
			continue
		}
		if l.stays() && next.seq > l.seq && !delayed(l) && !delayed(next) {
			f.add(OutOfOrder, next.LeaseRef, "it ran while job %q was in front of it", l.JobID)
		}
	}
}

func (f *findings) attempts(l, next *ledgerLease) {
	want := l.attempt + 1
	if w := l.settled(); w != nil && (w.action == core.Release || w.action == core.Snooze) {
		want = l.attempt
	}
	if !l.unsure() && next.attempt != want {
		f.add(Miscounted, next.LeaseRef, "attempt %d follows attempt %d, want %d", next.attempt, l.attempt, want)
	}
}

// starts: jobs start in publish order, as publishers saw it and by Seq. Of two
// publishes at the same time the one with the lesser Seq may be stored later, so a
// job may start behind those whose claims were sent before it was acknowledged.
func (c *Checker) starts(f *findings, lane []*ledgerLease) {
	if lane[0].Group == "" {
		return
	}
	var first []*ledgerLease
	seen := map[string]bool{}
	for _, l := range lane {
		if job := c.jobs[jobName{l.Queue, l.JobID}]; job != nil && !job.delayed && !seen[l.JobID] {
			seen[l.JobID] = true
			first = append(first, l)
		}
	}
	acked := laterLeast(first, func(l *ledgerLease) time.Duration {
		if job := c.jobs[jobName{l.Queue, l.JobID}]; job.acked {
			return job.publish.returned
		}
		return never
	})
	for i, l := range first {
		if acked[i] < c.jobs[jobName{l.Queue, l.JobID}].publish.sent {
			f.add(OutOfOrder, l.LeaseRef, "it started before a job whose publish had been acknowledged before this one's was sent")
		}
		for k := i - 1; k >= 0 && c.storedBefore(l, first[k]); k-- {
			if first[k].seq >= l.seq {
				f.add(OutOfOrder, l.LeaseRef, "it started after job %q, which has the greater Seq", first[k].JobID)
				break
			}
		}
	}
}

// storedBefore tells that the job of a lease was stored when the claim of an
// earlier lease was sent, or was published together with that one's job.
func (c *Checker) storedBefore(l, earlier *ledgerLease) bool {
	job, other := c.jobs[jobName{l.Queue, l.JobID}], c.jobs[jobName{earlier.Queue, earlier.JobID}]
	return job.acked && (job.publish.returned <= earlier.claim.sent || job.publish == other.publish)
}

// ends: each job that was acknowledged ends once.
func (f *findings) ends(job *ledgerJob, leases []*ledgerLease, state core.State, stored bool) {
	ref := core.LeaseRef{Queue: job.queue, Group: job.group, JobID: job.id}
	var end *ledgerWrite
	unsure := false
	for _, l := range leases {
		unsure = unsure || l.unsure()
		if w := l.settled(); w != nil && final(w.state) {
			if end != nil {
				f.add(Doubled, ref, "two settles ended it: %s and %s", end.name, w.name)
			}
			end = w
		}
	}
	for _, l := range leases {
		if end != nil && l.claim.sent > end.returned {
			f.add(Doubled, ref, "it was handed out again after %s had ended it", end.name)
		}
	}
	switch {
	case end != nil:
		if stored && !state.Finished() {
			f.add(Doubled, ref, "%s ended it, and the store has it as %s", end.name, state)
		}
	case stored && job.left:
	case stored && !state.Finished():
		f.add(Stranded, ref, "it is %s in the store, and nobody gets it", state)
	case !stored && job.acked && !unsure:
		f.add(Lost, ref, "its publish was acknowledged")
	}
}
