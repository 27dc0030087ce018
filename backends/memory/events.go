package memory

import (
	"context"
	"sort"
	"strconv"

	"github.com/rota-queue/rota/core"
)

// event appends to the queue's stream, if it keeps one.
func (q *queue) event(kind core.EventKind, j *job, now int64, text, worker string) {
	if q.eff.EventTTL <= 0 {
		return
	}
	q.eventSeq++
	q.events = append(q.events, core.Event{
		Token: strconv.FormatInt(q.eventSeq, 10), Kind: kind, At: timeOf(now), Queue: q.name,
		Group: j.Group, JobID: j.ID, JobKind: j.Kind, Attempt: j.Attempt,
		Error: core.CutError(text), Worker: worker,
	})
}

func (q *queue) trimEvents(now int64) {
	oldest := timeOf(now).Add(-q.eff.EventTTL)
	q.events = q.events[sort.Search(len(q.events), func(i int) bool { return q.events[i].At.After(oldest) }):]
}

// Events reads a page of events.
func (b *Backend) Events(ctx context.Context, f core.EventFilter) (core.EventPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.EventPage{}, err
	}
	after := int64(0)
	if f.After != "" && f.After != core.EventsFromNow {
		if after, err = strconv.ParseInt(f.After, 10, 64); err != nil {
			return core.EventPage{}, core.Invalid("event token", f.After, "is not one this stream gave")
		}
	}
	q, now, unlock, err := b.queueOp(ctx, f.Queue)
	if err != nil {
		return core.EventPage{}, err
	}
	defer unlock()
	if q == nil {
		return core.EventPage{}, notFound("queue", f.Queue)
	}
	if f.After == core.EventsFromNow {
		return core.EventPage{Next: strconv.FormatInt(q.eventSeq, 10)}, nil
	}
	if q.eff.EventTTL > 0 {
		q.trimEvents(now)
	}
	first := q.eventSeq - int64(len(q.events)) + 1
	start := min(max(after+1-first, 0), int64(len(q.events)))
	rest := q.events[start:]
	page := core.EventPage{Events: append([]core.Event(nil), rest[:min(limit, len(rest))]...), Next: f.After}
	if n := len(page.Events); n > 0 {
		page.Next = page.Events[n-1].Token
	}
	return page, nil
}
