package faultsuite

import (
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

// rounding is how much shorter a lease may be than asked for: the clocks of a
// machine are slewed against each other, and stores round.
const rounding = 5 * time.Millisecond

// checkLanes looks at the leases of each lane in the order of their fences.
func checkLanes(b *book) {
	for lane, leases := range b.lanes {
		var before *leaseRecord
		started := map[string]bool{}
		for _, r := range leases {
			if before != nil {
				b.checkSuccession(lane, before, r, started[r.Job])
			}
			b.checkOvertaken(lane, r)
			before = r
			started[r.Job] = true
		}
	}
}

// checkSuccession compares a lease with the one before it in its lane; again
// tells that the job was leased earlier.
func (b *book) checkSuccession(lane string, before, r *leaseRecord, again bool) {
	if before.Fence == r.Fence {
		b.breach("fence", r.Job, "%s had fence %d twice, for job %s and job %s", lane, r.Fence, before.Job, r.Job)
	}
	if before.Seq <= r.Seq || skips(r.Group) && again || !again && b.storedLater(r, before) {
		return
	}
	b.breach("order", r.Job, "%s: job %s (Seq %d) was handed out with fence %d after job %s (Seq %d) with fence %d",
		lane, r.Job, r.Seq, r.Fence, before.Job, before.Seq, before.Fence)
}

// storedLater tells that the job of a lease may have been stored only after an
// earlier lease was given: of two publishes at the same time the one with the
// lesser Seq may be stored later.
func (b *book) storedLater(r, before *leaseRecord) bool {
	j, other := b.jobs[r.Job], b.jobs[before.Job]
	return j.batch != other.batch && (!j.acked || j.ackedAt > before.Sent)
}

// checkOvertaken compares a lease with all later ones of its lane. What was sent
// after the first of them had been granted must have been refused, and none may
// have been granted while it lived.
func (b *book) checkOvertaken(lane string, r *leaseRecord) {
	if r.next < r.Sent {
		b.breach("fence", r.Job, "%s: fence %d of job %s was made after a greater one had been handed out", lane, r.Fence, r.Job)
	}
	alive := r.Sent + r.Lease
	for _, w := range r.writes {
		if w.Sent > r.next {
			b.breach("stale", r.Job, "%s: a write to job %s with fence %d was accepted %v after a later lease was granted",
				lane, r.Job, r.Fence, time.Duration(w.Sent-r.next))
		}
		if w.Lease != 0 {
			alive = max(alive, w.Sent+w.Lease)
		}
	}
	released := false // may have been, before the later lease was granted
	for _, s := range r.settles {
		if s.accepted() && s.Sent > r.next {
			b.breach("stale", r.Job, "%s: the %s of job %s with fence %d was accepted %v after a later lease was granted",
				lane, s.Action, r.Job, r.Fence, time.Duration(s.Sent-r.next))
		}
		released = released || s.possible() && s.Sent < r.next
	}
	if left := time.Duration(alive - r.next); left > rounding && !released && !b.stepped(r) {
		b.breach("exclusive", r.Job, "%s was leased again while job %s with fence %d held it for %v more", lane, r.Job, r.Fence, left)
	}
}

// stepped tells that the server's clock was set forward during a lease.
func (b *book) stepped(r *leaseRecord) bool {
	return slices.ContainsFunc(b.Steps, func(at int64) bool { return r.Sent < at && at < r.next })
}

// checkAttempts: each lease that was not given back counts as an attempt.
func checkAttempts(b *book) {
	for _, j := range b.order {
		spent := 0 // at least
		for _, r := range j.leases {
			if r.Attempt <= spent {
				b.breach("attempts", j.id, "job %s has attempt %d with fence %d, after %d that were spent", j.id, r.Attempt, r.Fence, spent)
			}
			spent = r.Attempt
			if r.may(core.Release, core.Snooze) {
				spent--
			}
		}
	}
}
