package rotapostgres

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bounds of how a transaction of the caller is watched for its commit: how soon it
// is first looked at, how rarely in the end, for how long, and how many at once.
const (
	watchFirst = 2 * time.Millisecond
	watchLast  = 500 * time.Millisecond
	watchFor   = time.Hour
	watchMost  = 10_000
)

// watcher sends the hints of publishes and settles that stand in transactions of
// the caller, when it sees that these have committed. It runs only while there are
// any.
type watcher struct {
	b       *Backend
	mu      sync.Mutex
	waiting []*watched
	running bool
}

type watched struct {
	xact  int64
	send  func()
	next  time.Time
	pause time.Duration
	until time.Time
}

// after calls send when the transaction has committed.
func (w *watcher) after(xact int64, send func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) >= watchMost {
		return // its workers poll
	}
	now := time.Now()
	w.waiting = append(w.waiting, &watched{xact: xact, send: send, pause: watchFirst, next: now.Add(watchFirst), until: now.Add(watchFor)})
	if w.running || w.b.begin(context.Background()) != nil {
		return
	}
	w.running = true
	go func() {
		defer w.b.calls.Done()
		w.run(w.b.base)
	}()
}

func (w *watcher) run(ctx context.Context) {
	for {
		due, next, ok := w.due(time.Now())
		if !ok {
			return
		}
		if len(due) > 0 {
			w.look(ctx, due)
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// due gives the transactions to look at now, or else when the next is.
func (w *watcher) due(now time.Time) (due []*watched, next time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 || w.b.base.Err() != nil {
		w.running = false
		return nil, next, false
	}
	// Whoever is due a little later is looked at as well: it costs nothing.
	soon := now.Add(watchFirst / 2)
	for _, t := range w.waiting {
		if !t.next.After(soon) {
			due = append(due, t)
		}
		if next.IsZero() || t.next.Before(next) {
			next = t.next
		}
	}
	return due, next, true
}

// look asks the server what became of transactions.
func (w *watcher) look(ctx context.Context, due []*watched) {
	ctx, cancel := context.WithTimeout(ctx, hintPatience)
	defer cancel()
	ids := make([]string, len(due))
	for i, t := range due {
		ids[i] = strconv.FormatInt(t.xact, 10)
	}
	var states []*string
	// The server refuses the whole statement for the sake of an id that it has not given out: one of
	// before a failover that lost it.
	rows, err := w.b.pool.Query(ctx, `SELECT CASE WHEN x::xid8 < pg_snapshot_xmax(pg_current_snapshot()) THEN pg_xact_status(x::xid8) ELSE 'in progress' END
		FROM unnest($1::text[]) WITH ORDINALITY AS t(x, n) ORDER BY n`, ids)
	if err == nil {
		states, err = pgx.CollectRows(rows, pgx.RowTo[*string])
	}
	now := time.Now()
	ended := map[*watched]bool{}
	for i, t := range due {
		t.pause = min(2*t.pause, watchLast)
		t.next = now.Add(t.pause)
		switch {
		case err == nil && text(states[i]) == "committed":
			t.send()
			ended[t] = true
		case err == nil && text(states[i]) != "in progress", now.After(t.until):
			ended[t] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := w.waiting[:0]
	for _, t := range w.waiting {
		if !ended[t] {
			kept = append(kept, t)
		}
	}
	clear(w.waiting[len(kept):])
	w.waiting = kept
}
