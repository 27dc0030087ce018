package rotapostgres

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

const (
	// hintEvery is the least time between two statements that send hints.
	hintEvery = 2 * time.Millisecond
	// hintLater is how long it may take to find out whether a worker went idle
	// while a publish was being committed.
	hintLater = 10 * time.Millisecond
	// hintPatience bounds such a statement.
	hintPatience = 5 * time.Second
)

// hinter sends hints from a connection of its own, after what they are about has
// been committed: a NOTIFY makes commits wait for each other, so it must not stand
// in the transactions of publishes and settles. It runs only while there is
// something to send.
type hinter struct {
	b *Backend

	mu      sync.Mutex
	queues  map[string]bool // something became claimable
	first   map[string]bool // made just now: somebody may wait for it already
	told    []string        // whole messages
	urgent  bool
	running bool
}

func newHinter(b *Backend) *hinter {
	return &hinter{b: b, queues: map[string]bool{}, first: map[string]bool{}}
}

// ready hints that there may be work in the queue. idle says that a worker was
// known to wait; otherwise it is looked at a little later.
func (h *hinter) ready(queue string, idle bool) {
	if h.b.opts.Notify == NotifyOff {
		h.b.hub.deliver(core.Wake{Kind: core.WakeReady, Queue: queue})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queues[queue] = true
	h.urgent = h.urgent || idle
	h.start()
}

// made hints that a queue is there now.
func (h *hinter) made(queue string) {
	if h.b.opts.Notify == NotifyOff {
		h.b.hub.deliver(core.Wake{Kind: core.WakeReady, Queue: queue})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first[queue] = true
	h.urgent = true
	h.start()
}

// finished hints that a job with a result has finished.
func (h *hinter) finished(queue, id string) {
	if h.b.opts.Notify == NotifyOff {
		h.b.hub.deliver(core.Wake{Kind: core.WakeFinished, Queue: queue, JobID: id})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, "f"+queue+"\n"+id)
	h.urgent = true
	h.start()
}

// start runs the sender unless it runs or the backend is closed. The caller holds
// h.mu.
func (h *hinter) start() {
	if h.running || h.b.begin(context.Background()) != nil {
		return
	}
	h.running = true
	go func() {
		defer h.b.calls.Done()
		h.run()
	}()
}

func (h *hinter) run() {
	for {
		h.mu.Lock()
		if len(h.queues)+len(h.first)+len(h.told) == 0 {
			h.running = false
			h.mu.Unlock()
			return
		}
		urgent := h.urgent
		h.mu.Unlock()
		if !urgent {
			h.sleep(hintLater)
		}
		h.send(h.b.base)
		h.sleep(hintEvery)
	}
}

func (h *hinter) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.b.base.Done():
	}
}

func (h *hinter) send(ctx context.Context) {
	h.mu.Lock()
	queues, first, told := names(h.queues), names(h.first), h.told
	clear(h.queues)
	clear(h.first)
	h.told, h.urgent = nil, false
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, hintPatience)
	defer cancel()
	// Hints may be lost: polling is the truth.
	if told == nil {
		told = []string{}
	}
	_, err := h.b.pool.Exec(ctx, h.b.sql("SELECT rota.nudge($1::text[], $2::text[], $3::text[])"), queues, first, told)
	if err != nil && ctx.Err() == nil {
		h.b.opts.Logger.Debug("rota: hints were not sent", "error", err)
	}
}

func names(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for name := range set {
		list = append(list, name)
	}
	return list
}

// parseHint is the inverse of what nudge and hint send.
func parseHint(payload string) (core.Wake, bool) {
	queue, id, ok := strings.Cut(payload, "\n")
	if !ok || queue == "" {
		return core.Wake{}, false
	}
	w := core.Wake{Queue: queue[1:], JobID: id}
	switch queue[0] {
	case 'r':
		w.Kind = core.WakeReady
	case 'c':
		w.Kind = core.WakeCancel
	case 'f':
		w.Kind = core.WakeFinished
	default:
		return core.Wake{}, false
	}
	return w, true
}
