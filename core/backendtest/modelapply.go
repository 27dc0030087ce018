package backendtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// apply does an operation on both stores and compares what it answers.
func (r *modelRun) apply(o op) {
	q := r.queues[o.queue]
	switch o.kind {
	case opPublish:
		r.publish(o)
	case opClaim:
		r.claim(o)
	case opSettle, opExtend, opExpire, opSave:
		r.holder(o)
	case opMoveIDs, opMoveState:
		r.move(o)
	case opUpdate:
		if len(r.ids) == 0 {
			return
		}
		id := r.ids[o.picks[0]%len(r.ids)]
		r.both(func(_ int, b core.Backend) string { return viewError(b.Update(r.ctx, q, id, o.patch, o.while)) })
	case opAct:
		r.both(func(_ int, b core.Backend) string { return viewError(b.ActOnGroup(r.ctx, q, o.group, o.act)) })
	case opPauseQueue, opResumeQueue:
		r.both(func(_ int, b core.Backend) string {
			do := b.PauseQueue
			if o.kind == opResumeQueue {
				do = b.ResumeQueue
			}
			changed, err := do(r.ctx, q)
			return fmt.Sprint(changed, viewError(err))
		})
	case opConfigure:
		r.both(func(_ int, b core.Backend) string { return viewError(b.Configure(r.ctx, q, o.config)) })
	case opPurge:
		r.both(func(_ int, b core.Backend) string {
			n, err := b.Purge(r.ctx, q, core.MaxPage)
			return fmt.Sprint(n, viewError(err))
		})
	case opDeleteQueue:
		r.both(func(_ int, b core.Backend) string { return viewError(b.DeleteQueue(r.ctx, q, o.force)) })
	case opBind:
		r.both(func(_ int, b core.Backend) string { return viewError(b.Bind(r.ctx, r.topic, q)) })
	case opUnbind:
		r.both(func(_ int, b core.Backend) string { return viewError(b.Unbind(r.ctx, r.topic, q)) })
	}
}

func (r *modelRun) publish(o op) {
	req := core.PublishRequest{AllOrNothing: o.whole}
	waits := false
	for _, j := range o.jobs {
		n := j.job
		if j.topic {
			n.Topic = r.topic
			if j.old != 0 { // sometimes without a queue to fall back to
				n.Queue = r.queues[o.queue]
			}
		} else {
			n.Queue = r.queues[o.queue]
		}
		if j.old >= 0 && len(r.ids) > 0 && !o.whole {
			n.ID = r.ids[len(r.ids)-1-j.old%len(r.ids)]
		} else {
			n.ID = fmt.Sprintf("j%02d", len(r.ids))
			r.ids = append(r.ids, n.ID)
		}
		waits = waits || n.Delay == soon
		req.Jobs = append(req.Jobs, n)
	}
	r.both(func(_ int, b core.Backend) string {
		results, err := b.Publish(r.ctx, req)
		lines := []string{viewError(err)}
		for _, res := range results {
			line := viewError(res.Err)
			if res.Err == nil {
				line = fmt.Sprintf("%s in %v existing %v replaced %v numbered %v", res.ID, res.Queues, res.Existing, res.Replaced, res.Seq != 0)
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n")
	})
	if waits {
		r.waitFrom(soon)
	}
}

// nextSlack allows for the time between an operation on the one store and on
// the other.
const nextSlack = 10 * time.Second

func (r *modelRun) claim(o op) {
	var results [2]core.ClaimResult
	r.both(func(i int, b core.Backend) string {
		res, err := b.Claim(r.ctx, core.ClaimRequest{
			Queue: r.queues[o.queue], Max: o.max, MinPriority: o.floor, ByTurn: o.byTurn, Lease: hour, Owner: owner,
		})
		results[i] = res
		now, clockErr := b.Now(r.ctx)
		if clockErr != nil {
			r.fail("reading the clock: %v", clockErr)
		}
		return viewError(err) + "\n" + viewLeases(res, now)
	})
	want, got := results[0].Next, results[1].Next
	if want > 0 && (got <= 0 || got > want+nextSlack) {
		r.fail("the reference says that something falls due in %s, the backend under test in %s", want, got)
	}
	if r.live[o.queue] == nil {
		r.live[o.queue] = map[int]bool{}
	}
	for i := range results[0].Leases {
		r.live[o.queue][len(r.leases[o.queue])] = true
		r.leases[o.queue] = append(r.leases[o.queue], leasePair{results[0].Leases[i], results[1].Leases[i]})
	}
}

// pick turns numbers into leases: three of four times one that is live.
func (r *modelRun) pick(queue int, picks []int) []int {
	var live []int
	for i := range r.leases[queue] {
		if r.live[queue][i] {
			live = append(live, i)
		}
	}
	var picked []int
	for _, p := range picks {
		switch {
		case len(r.leases[queue]) == 0:
		case p%4 == 3 || len(live) == 0:
			picked = append(picked, p/4%len(r.leases[queue]))
		default:
			picked = append(picked, live[p%len(live)])
		}
	}
	return picked
}

func (r *modelRun) refs(queue, store int, picked []int) []core.LeaseRef {
	refs := make([]core.LeaseRef, len(picked))
	for i, p := range picked {
		refs[i] = r.leases[queue][p][store].LeaseRef
	}
	return refs
}

// holder does what the holder of a lease may do.
func (r *modelRun) holder(o op) {
	picked := r.pick(o.queue, o.picks)
	if len(picked) == 0 {
		return
	}
	q := r.queues[o.queue]
	switch o.kind {
	case opSettle:
		r.settle(o, picked)
	case opExtend, opExpire:
		d := hour
		if o.kind == opExpire {
			d = core.MinLease
		}
		var until [2]time.Time
		r.both(func(i int, b core.Backend) string {
			extensions, err := b.Extend(r.ctx, q, r.refs(o.queue, i, picked), d)
			lines := []string{viewError(err)}
			for _, ext := range extensions {
				if ext.Until.After(until[i]) {
					until[i] = ext.Until
				}
				lines = append(lines, fmt.Sprint(viewError(ext.Err), " cancel ", ext.CancelRequested))
			}
			return strings.Join(lines, "\n")
		})
		if o.kind == opExpire {
			r.wait(until)
		}
	case opSave:
		r.both(func(i int, b core.Backend) string {
			return viewError(b.Save(r.ctx, r.refs(o.queue, i, picked)[0], o.patch))
		})
	}
}

func (r *modelRun) settle(o op, picked []int) {
	r.both(func(i int, b core.Backend) string {
		var outcomes []core.Outcome
		for _, ref := range r.refs(o.queue, i, picked) {
			outcomes = append(outcomes, core.Outcome{
				Lease: ref, Action: o.action, Delay: o.delay, Error: o.text, Trace: o.text, Patch: o.patch,
			})
		}
		results, err := b.Settle(r.ctx, r.queues[o.queue], outcomes)
		lines := []string{viewError(err)}
		for _, res := range results {
			line := viewError(res.Err)
			if res.Err == nil {
				line = res.State.String()
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, "\n")
	})
	for _, p := range picked {
		delete(r.live[o.queue], p)
	}
	if o.delay == soon {
		r.waitFrom(soon)
	}
}

func (r *modelRun) move(o op) {
	req := core.MoveRequest{Queue: r.queues[o.queue], To: o.to}
	if o.kind == opMoveState {
		req.From, req.Group, req.Limit = o.from, o.group, o.limit
		if o.from == o.to || o.from == core.StateRunning && o.to != core.StateCancelled {
			return // what a store does with a move of nothing is its own
		}
	} else {
		if len(r.ids) == 0 {
			return
		}
		for _, p := range o.picks {
			req.IDs = append(req.IDs, r.ids[max(0, len(r.ids)-1-p%len(r.ids))])
		}
		req.IDs = slices.Compact(req.IDs)
	}
	r.both(func(_ int, b core.Backend) string {
		res, err := b.Move(r.ctx, req)
		lines := []string{fmt.Sprint(viewError(err), " moved ", res.Moved, " more ", res.More)}
		for _, err := range res.Errs {
			lines = append(lines, viewError(err))
		}
		return strings.Join(lines, "\n")
	})
}
