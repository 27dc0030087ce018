package faultsuite

import (
	"sync"
	"testing"
	"time"

	"github.com/rota-queue/rota/internal/testserver"
)

// patience is how long a test waits for what must happen soon. It is long, as a
// loaded machine may run many tests at once; it bounds nothing that is promised.
const patience = time.Minute

// history gathers what processes write.
type history struct {
	t testing.TB

	mu      sync.Mutex
	events  []Event
	changed chan struct{} // closed and replaced when events come
	readers sync.WaitGroup
}

func newHistory(t testing.TB) *history {
	h := &history{t: t, changed: make(chan struct{})}
	// Registered before any child's, so it runs when all children are gone.
	t.Cleanup(h.readers.Wait)
	return h
}

// follow takes in all lines of a child, until it has ended.
func (h *history) follow(proc string, c *testserver.ChildProcess) {
	h.readers.Go(func() {
		for {
			line, ok := c.Next()
			if !ok {
				return
			}
			h.add(parse(proc, line))
		}
	})
}

func (h *history) add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	close(h.changed)
	h.changed = make(chan struct{})
}

// all waits until all children have ended, and gives everything they wrote.
func (h *history) all() []Event {
	h.readers.Wait()
	return h.since(0)
}

// since gives the events from the i-th on.
func (h *history) since(i int) []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[i:len(h.events):len(h.events)]
}

// len is the number of events so far.
func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}

// await waits until want accepts an event from the i-th on, and returns it.
func (h *history) await(what string, i int, want func(Event) bool) Event {
	h.t.Helper()
	late := time.After(patience)
	for {
		h.mu.Lock()
		for ; i < len(h.events); i++ {
			if want(h.events[i]) {
				defer h.mu.Unlock()
				return h.events[i]
			}
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			h.t.Fatalf("did not happen within %v: %s", patience, what)
		}
	}
}

// awaitCount waits until want has accepted n different events from the i-th on.
func (h *history) awaitCount(what string, i, n int, want func(Event) bool) []Event {
	h.t.Helper()
	var found []Event
	h.await(what, i, func(e Event) bool {
		if want(e) {
			found = append(found, e)
		}
		return len(found) == n
	})
	return found
}

// is makes a condition for await.
func is(kind Kind, proc string) func(Event) bool {
	return func(e Event) bool { return e.Kind == kind && (proc == "" || e.Proc == proc) }
}

// eventually waits until condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
		time.Sleep(pause)
	}
}
