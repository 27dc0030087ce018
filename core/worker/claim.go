package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/rota-queue/rota/core"
)

// What the claim loop waits for.
const (
	awake    int32 = iota
	forSlots       // a slot to become free
	forWork        // a hint, or the time to ask
)

// minPause bounds how often a queue that was empty is asked without a hint.
const minPause = time.Millisecond

// claimLoop asks the queues for as many groups as there are free slots, and starts
// their handlers, until the worker stops. One claim is in flight at a time: slots
// that become free meanwhile are filled by the next one together.
func (w *Worker) claimLoop() {
	defer w.claimsEnd()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !w.isStopping() {
		w.gather() // one claim for many slots instead of one for the first
		if w.free() == 0 {
			w.rest(forSlots, nil)
			continue
		}
		if wait := time.Until(w.round()); wait > 0 {
			timer.Reset(wait)
			w.rest(forWork, timer.C)
		}
	}
}

// round asks the queues that are due until one has work for all free slots, and
// gives the time of the next round.
func (w *Worker) round() time.Time {
	now := time.Now()
	for _, q := range w.inOrder(now) {
		if free := w.free(); free == 0 || w.ask(q, free) || w.isStopping() {
			// Slots that became free meanwhile are the first queue's again.
			return now
		}
	}
	var next time.Time
	for i, q := range w.queues {
		if _, at := q.due(now); i == 0 || at.Before(next) {
			next = at
		}
	}
	return next
}

// inOrder gives the queues that are due in the order to be asked. The slice is
// valid until the next call.
func (w *Worker) inOrder(now time.Time) []*queue {
	order := w.order[:0]
	for _, q := range w.queues {
		if due, _ := q.due(now); due {
			order = append(order, q)
		}
	}
	w.order = order
	if !w.cfg.Strict {
		shuffle(order)
	}
	return order
}

// shuffle puts each next queue in its place with a chance in proportion to its
// weight.
func shuffle(order []*queue) {
	for ; len(order) > 1; order = order[1:] {
		sum := 0.0
		for _, q := range order {
			sum += q.weight
		}
		i, draw := 0, rand.Float64()*sum
		for draw -= order[0].weight; draw >= 0 && i < len(order)-1; draw -= order[i].weight {
			i++
		}
		order[0], order[i] = order[i], order[0]
	}
}

// ask claims up to free groups of a queue, and reports whether it got as many.
func (w *Worker) ask(q *queue, free int) bool {
	q.hinted.Store(false) // before the claim: what comes later is news
	high := rand.Float64() < w.cfg.HighRatio
	if high && w.cfg.HighThreshold > 1 {
		got, ok := w.claim(q, core.ClaimRequest{Max: free, MinPriority: w.cfg.HighThreshold})
		if free -= got; free == 0 || !ok || w.isStopping() {
			return free == 0
		}
		high = false
	}
	// With the threshold of 1, highest first is the high ones first and then all.
	got, _ := w.claim(q, core.ClaimRequest{Max: free, ByTurn: !high})
	return got >= min(free, core.MaxClaimBatch)
}

// claim makes one claim, starts the handlers and notes when to ask again. It
// reports how many groups it got and whether the store answered.
func (w *Worker) claim(q *queue, req core.ClaimRequest) (int, bool) {
	req.Queue, req.Max, req.Lease, req.Owner = q.name, min(req.Max, core.MaxClaimBatch), w.cfg.Lease, w.cfg.Owner
	ctx, cancel := context.WithTimeout(w.ops, w.cfg.Lease/2)
	sent := time.Now()
	res, err := w.backend.Claim(ctx, req)
	cancel()
	now := time.Now()
	paused := errors.Is(err, core.ErrQueuePaused)
	if w.backendClosed(err) {
		return 0, false
	}
	if err != nil && !paused {
		q.retryAt = now.Add(q.backoff.next())
		if w.ops.Err() == nil {
			q.claimTrouble.report(err)
		}
		return 0, false
	}
	q.answered(err, now)
	w.count.claimed.Add(uint64(len(res.Leases)))
	for _, lease := range res.Leases {
		q.dispatch(lease, sent, now)
	}
	if f := w.cfg.Observer.Claimed; f != nil {
		q.tell(func() { f(q.name, len(res.Leases), now.Sub(sent)) })
	}
	if full := len(res.Leases) >= req.Max; full {
		q.askAt = time.Time{}
	} else {
		q.askAt = now.Add(w.pause(res.Next))
	}
	w.purger.offer(q, now, len(res.Leases) < req.Max)
	return len(res.Leases), !paused
}

// answered notes that the store answers; err is nil or says that the queue is
// paused.
func (q *queue) answered(err error, now time.Time) {
	q.retryAt = time.Time{}
	q.backoff.reset()
	if err != nil {
		q.claimTrouble.report(err)
		return
	}
	q.claimTrouble.over()
}

// pause is how long to leave an empty queue alone in which the next thing falls
// due after next.
func (w *Worker) pause(next time.Duration) time.Duration {
	poll := around(w.cfg.PollInterval)
	if next > 0 && next < poll {
		return max(next, minPause)
	}
	return poll
}

// dispatch starts the handler of a lease, or settles it without.
func (q *queue) dispatch(lease core.Lease, sent, now time.Time) {
	w := q.w
	t := newTask(q, lease, sent)
	switch {
	case t.late():
		q.leases.enterIdle(t)
		t.outcome.Action, t.outcome.Error = core.Dead, "the deadline of the job passed before it could start"
		q.settle(t)
	case !q.leases.enter(t):
		q.log.Warn("rota worker: an earlier run of this group, which lost its lease, has not returned yet: the job is put off",
			"job", t.Job.ID, "group", t.Job.Group)
		w.unsettled.Add(1) // and no slot
		w.senders.Go(func() { q.putOff(t) })
	default:
		w.open.Add(1)
		w.slots.start(t, now)
	}
}

// putOff keeps a job for a PollInterval and then gives it back. To snooze it would
// not do: under core.Skip it would lose its place.
func (q *queue) putOff(t *Task) {
	timer := time.NewTimer(q.w.cfg.PollInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.w.stopping:
	}
	t.outcome.Action = core.Release
	q.settler.add(t)
}

// free is the number of groups that may be claimed now: the free slots and what
// may be claimed ahead, unless outcomes pile up. While all slots have work, it is
// none until a claim is worth its while.
func (w *Worker) free() int {
	open, ahead := int(w.open.Load()), w.slots.ahead()
	free := max(0, min(w.cfg.Concurrency+ahead, w.maxOpen-int(w.unsettled.Load()))-open)
	if open >= w.cfg.Concurrency && free < ahead/2 {
		return 0
	}
	return free
}

// maxGather bounds the time of gather.
const maxGather = 100 * time.Microsecond

// gather lets handlers that were started a moment ago do their work if that is
// quickly done, so that what their returning leads to can be done for all
// together. With handlers that take longer it takes no time.
func (w *Worker) gather() {
	if w.starting.Load() == 0 {
		return
	}
	for began := time.Now(); w.starting.Load() > 0 && time.Since(began) < maxGather; {
		runtime.Gosched()
	}
	runtime.Gosched()
}

// rest blocks the claim loop until it is roused from waiting for what, the timer
// fires or the worker stops.
func (w *Worker) rest(what int32, timer <-chan time.Time) {
	w.resting.Store(what)
	defer w.resting.Store(awake)
	if w.mayGoOn(what) { // whoever changed that before the Store did not rouse us
		return
	}
	select {
	case <-w.roused:
	case <-timer:
	case <-w.stopping:
	}
}

func (w *Worker) mayGoOn(what int32) bool {
	if what == forSlots {
		return w.free() > 0
	}
	for _, q := range w.queues {
		if q.hinted.Load() && q.retryAt.IsZero() {
			return true
		}
	}
	return false
}

// rouse wakes the claim loop if it rests for what. Change first what it rests for,
// then call it.
func (w *Worker) rouse(what int32) {
	if what == forSlots && w.free() == 0 {
		return
	}
	if w.resting.Load() == what && w.resting.CompareAndSwap(what, awake) {
		select {
		case w.roused <- struct{}{}:
		default:
		}
	}
}
