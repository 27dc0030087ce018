package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

// Claim leases groups that are due; see core.Leaser.
func (b *Backend) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	if err := req.Validate(); err != nil {
		return core.ClaimResult{}, err
	}
	q, now, unlock, err := b.queueOp(ctx, req.Queue)
	if err != nil {
		return core.ClaimResult{}, err
	}
	defer unlock()
	if q == nil {
		return core.ClaimResult{}, nil
	}
	if q.paused {
		return core.ClaimResult{}, fmt.Errorf("claim from queue %q: %w", req.Queue, core.ErrQueuePaused)
	}
	q.joinDue(now)
	var res core.ClaimResult
	shares := q.shares(req, now)
	for tier := core.MaxPriority; tier >= req.MinPriority; tier-- {
		most := len(res.Leases) + shares[tier]
		for len(res.Leases) < min(most, req.Max) {
			t, ok := q.ready[tier].Min()
			if !ok || t.due > now {
				break
			}
			if j := q.openHead(t.lane, now); j != nil {
				res.Leases = append(res.Leases, q.lease(t.lane, j, req, now))
			}
		}
	}
	if len(res.Leases) < req.Max {
		next := q.nextDue(req.MinPriority)
		q.idle, q.idleNext = true, next
		if next > 0 {
			res.Next = time.Duration(max(1, next-now)) * time.Microsecond
		}
	}
	return res, nil
}

// shares gives how many leases each tier may get: all, or for a claim by turn as
// many as it has among the groups that have waited longest.
func (q *queue) shares(req core.ClaimRequest, now int64) [core.MaxPriority + 1]int {
	var shares [core.MaxPriority + 1]int
	if !req.ByTurn {
		for tier := range shares {
			shares[tier] = req.Max
		}
		return shares
	}
	var due []int64
	var tiers []int
	for tier := core.MaxPriority; tier >= req.MinPriority; tier-- {
		n := 0
		q.ready[tier].Scan(func(t turn) bool {
			if n == req.Max || t.due > now {
				return false
			}
			due, tiers, n = append(due, t.due), append(tiers, tier), n+1
			return true
		})
	}
	order := make([]int, len(due))
	for i := range order {
		order[i] = i
	}
	// Of equal ones the higher tier is first: it came first above.
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(due[a], due[b]) })
	for _, i := range order[:min(len(order), req.Max)] {
		shares[tiers[i]]++
	}
	return shares
}

// openHead makes a lane that is due ready to be leased and gives its head, or
// nil when the lane turns out to have nothing to run now; then it is no longer
// due.
func (q *queue) openHead(l *lane, now int64) *job {
	if l.running != nil {
		q.expire(l, now)
	}
	switch {
	case len(l.line) == 0:
		q.drained(l)
	case l.blocked():
		q.unqueue(l)
	case l.line[0].runAt() > now:
		q.setDue(l, l.line[0].runAt(), now)
	default:
		return l.line[0]
	}
	return nil
}

// expire ends a lease that has run out.
func (q *queue) expire(l *lane, now int64) {
	j, owner := l.running, l.owner
	j.fail(now, core.LeaseExpired, "", owner)
	q.day(now).Failed++
	q.event(core.EventLeaseLost, j, now, core.LeaseExpired, owner)
	l.free()
	switch {
	case j.CancelRequested:
		l.remove(j)
		q.finish(j, core.StateCancelled, now)
		q.event(core.EventCancelled, j, now, "", owner)
	case j.exhausted():
		q.die(l, j, now, core.LeaseExpired, owner)
	default:
		q.setState(j, core.StatePending, j.place)
	}
}

// lease hands out the lane with its head j.
func (q *queue) lease(l *lane, j *job, req core.ClaimRequest, now int64) core.Lease {
	l.running, l.owner = j, req.Owner
	l.until = now + req.Lease.Microseconds()
	l.fence = q.b.nextFence(now)
	l.token = rand.Text()
	j.Attempt++
	j.ClaimedAt = timeOf(now)
	q.setState(j, core.StateRunning, now)
	q.setDue(l, l.until, now)
	q.event(core.EventStarted, j, now, "", req.Owner)
	return core.Lease{
		LeaseRef: core.LeaseRef{Queue: q.name, Group: j.Group, JobID: j.ID, Token: l.token},
		Fence:    l.fence, Until: timeOf(l.until), Job: j.copyOf(),
	}
}

// nextDue is when the next thing falls due by itself; 0 when nothing will.
func (q *queue) nextDue(minPriority int) int64 {
	next := int64(0)
	earlier := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	for tier := minPriority; tier <= core.MaxPriority; tier++ {
		if t, ok := q.ready[tier].Min(); ok {
			earlier(t.due)
		}
	}
	if e, ok := q.aside.Min(); ok {
		earlier(e.score)
	}
	return next
}
