package worker

import (
	"context"
	"time"
)

const (
	// purgeEvery is the time between two purges of a queue, spread by a quarter.
	// A worker that never idles purges after purgeAnyway.
	purgeEvery  = time.Minute
	purgeAnyway = 10 * purgeEvery
	// purgeBatch is how many jobs one call may remove; purgePause the time between
	// calls that found as many.
	purgeBatch = 500
	purgePause = 20 * time.Millisecond
)

// purger removes what retention is over for, one queue at a time, when the worker
// has slots to spare.
type purger struct {
	next    chan *queue // has room for one
	trouble trouble
}

// offer asks for a purge of a queue if one is due. The claim loop calls it.
func (p *purger) offer(q *queue, now time.Time, idle bool) {
	due := q.purgeAt
	if !idle {
		due = due.Add(purgeAnyway - purgeEvery)
	}
	if now.Before(due) {
		return
	}
	select {
	case p.next <- q:
		q.purgeAt = now.Add(around(purgeEvery))
	default: // another one is at work: later
	}
}

// work purges what is offered until ctx ends.
func (p *purger) work(ctx context.Context, backend Backend) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-p.next:
			p.purge(ctx, backend, q)
		}
	}
}

func (p *purger) purge(ctx context.Context, backend Backend, q *queue) {
	for ctx.Err() == nil {
		n, err := backend.Purge(ctx, q.name, purgeBatch)
		if q.w.backendClosed(err) {
			return
		}
		if err != nil {
			if ctx.Err() == nil {
				p.trouble.report(err)
			}
			return
		}
		p.trouble.over()
		if n < purgeBatch {
			return
		}
		sleep(ctx, purgePause)
	}
}
