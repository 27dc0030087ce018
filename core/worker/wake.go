package worker

import (
	"context"
	"errors"
	"time"

	"github.com/rota-queue/rota/core"
)

// listen turns the store's hints into questions of the claim loop, until ctx ends.
// Without hints the worker polls.
func (w *Worker) listen(ctx context.Context) {
	names := make([]string, len(w.queues))
	for i, q := range w.queues {
		names[i] = q.name
	}
	fault := trouble{log: w.cfg.Logger, what: "listening for wake-ups"}
	pauses := backoff{min: 50 * time.Millisecond, max: 5 * time.Second}
	for ctx.Err() == nil {
		wakes, err := w.backend.Wakes(ctx, names...)
		switch {
		case errors.Is(err, core.ErrUnsupported):
			return
		case w.backendClosed(err):
			return
		case err != nil:
			if ctx.Err() == nil {
				fault.report(err)
			}
		default:
			fault.over()
			if w.hear(wakes) > time.Second {
				pauses.reset()
			}
		}
		sleep(ctx, pauses.next())
	}
}

// hear handles hints until the channel is closed, and reports how long that took.
func (w *Worker) hear(wakes <-chan core.Wake) time.Duration {
	start := time.Now()
	for _, q := range w.queues { // what was hinted at before we listened is lost
		q.hint()
	}
	for wake := range wakes {
		q := w.byName[wake.Queue]
		if q == nil {
			continue
		}
		switch wake.Kind {
		case core.WakeReady:
			q.hint()
		case core.WakeCancel:
			if t := q.leases.find(wake.JobID); t != nil {
				q.cancelled(t)
			}
		}
	}
	return time.Since(start)
}
