package worker

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// queue is all that belongs to one queue of a worker.
type queue struct {
	w      *Worker
	name   string
	weight float64
	log    *slog.Logger

	leases  leases
	settler settler

	// hinted: there may be work, whatever an earlier claim said.
	hinted atomic.Bool

	// These belong to the claim loop.
	askAt   time.Time // when to ask without a hint; zero: now
	retryAt time.Time // not to be asked before; zero: no trouble
	backoff backoff
	purgeAt time.Time // when a purge is due

	claimTrouble, extendTrouble, settleTrouble trouble
}

func newQueue(w *Worker, c Queue) *queue {
	q := &queue{
		w: w, name: c.Name, weight: float64(c.Weight),
		log:     w.cfg.Logger.With("queue", c.Name),
		backoff: backoff{min: 50 * time.Millisecond, max: 5 * time.Second},
	}
	q.leases.onLost = q.lost
	q.leases.handlers = make(map[lane]*Task)
	q.settler.q = q
	q.settler.backoff = backoff{min: 10 * time.Millisecond, max: time.Second}
	q.claimTrouble = trouble{log: q.log, what: "claim"}
	q.extendTrouble = trouble{log: q.log, what: "heartbeat"}
	q.settleTrouble = trouble{log: q.log, what: "settle"}
	return q
}

// hint tells the claim loop that there may be work.
func (q *queue) hint() {
	if !q.hinted.Load() {
		q.hinted.Store(true)
	}
	q.w.rouse(forWork)
}

// due reports whether the queue should be asked, or when.
func (q *queue) due(now time.Time) (bool, time.Time) {
	at := q.askAt
	if q.hinted.Load() {
		at = time.Time{}
	}
	if q.retryAt.After(at) {
		at = q.retryAt
	}
	return !at.After(now), at
}
