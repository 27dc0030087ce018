package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
)

// Observer is told what a worker does. Nil functions are left out. They are called
// in the middle of the work by many goroutines at once: they must be quick and
// must not block or call the worker's Stop. A panic is caught and logged.
type Observer struct {
	// Claimed is told of each claim that was answered: how many jobs it brought
	// and how long it took.
	Claimed func(queue string, jobs int, took time.Duration)
	// Settled is told of each lease that has ended, one way or another.
	Settled func(Settlement)
	// LeaseLost is told of each lease that was lost while its handler ran.
	LeaseLost func(job *core.Job)
}

// Settlement tells how a lease ended.
type Settlement struct {
	Job *core.Job
	// Action that was asked for; zero for a handler that settled the lease itself
	// or lost it.
	Action core.Action
	// State where the job stands now; core.StateUnknown when that is not known.
	State core.State
	// Ran is how long the handler ran; zero when it was not called.
	Ran time.Duration
	// Err is nil when the outcome was written. It matches core.ErrLeaseLost when
	// the token was stale, or tells why the worker gave up.
	Err error
}

// Stats is a snapshot of a worker. The counters grow from zero as it starts.
type Stats struct {
	// Running handlers (slots in use), jobs Waiting for a slot (see
	// [Config.Prefetch]) and Unsettled outcomes on their way to the store.
	Running, Waiting, Unsettled int
	// Claimed counts leases taken, the others how they ended.
	Claimed, Completed, Retried, Released, Snoozed, Dead, Cancelled uint64
	// LeasesLost counts leases lost while their handlers ran.
	LeasesLost uint64
	// OutcomesLost counts outcomes that were not written: the lease was lost while
	// the handler ran or before the outcome came to the store, or the worker gave up.
	OutcomesLost uint64
}

// counters are the parts of [Stats] that only grow.
type counters struct {
	claimed, leasesLost, outcomesLost atomic.Uint64
	settled                           [core.Cancel + 1]atomic.Uint64
}

// Stats reads the counters. Before Start all are zero.
func (w *Worker) Stats() Stats {
	c := &w.count
	running, waiting := w.slots.inUse()
	return Stats{
		Running:      running,
		Waiting:      waiting,
		Unsettled:    int(w.unsettled.Load()),
		Claimed:      c.claimed.Load(),
		Completed:    c.settled[core.Complete].Load(),
		Retried:      c.settled[core.Retry].Load(),
		Released:     c.settled[core.Release].Load(),
		Snoozed:      c.settled[core.Snooze].Load(),
		Dead:         c.settled[core.Dead].Load(),
		Cancelled:    c.settled[core.Cancel].Load(),
		LeasesLost:   c.leasesLost.Load(),
		OutcomesLost: c.outcomesLost.Load(),
	}
}

// trouble logs a fault that goes on: when it begins, when its nature changes and
// when it is over, but not each time.
type trouble struct {
	log  *slog.Logger
	what string // such as "claim"

	active atomic.Bool
	mu     sync.Mutex
	nature error
	since  time.Time
	times  int
}

// natures are the errors that are told apart.
var natures = []error{core.ErrQueuePaused, core.ErrUnavailable, core.ErrMisconfigured, core.ErrInvalid, context.DeadlineExceeded}

func natureOf(err error) error {
	for _, n := range natures {
		if errors.Is(err, n) {
			return n
		}
	}
	return nil
}

func (t *trouble) report(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	nature := natureOf(err)
	t.times++
	if t.active.Load() && t.nature == nature {
		return
	}
	if !t.active.Load() {
		t.since, t.times = time.Now(), 1
	}
	t.nature = nature
	t.active.Store(true)
	if nature == core.ErrQueuePaused {
		t.log.Info("rota worker: queue is paused")
		return
	}
	t.log.Warn("rota worker: "+t.what+" fails, will be tried again", "error", err)
}

// over says that it works. It costs nothing when there was no trouble.
func (t *trouble) over() {
	if !t.active.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.active.Swap(false) {
		return
	}
	t.log.Info("rota worker: "+t.what+" works again", "failed", t.times, "for", time.Since(t.since))
}
