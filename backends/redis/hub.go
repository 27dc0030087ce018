package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
)

// hub is the one pub/sub connection of a backend. It is open as long as somebody
// listens.
type hub struct {
	b *Backend

	// change is held while the set of channels changes on both sides, so that the
	// server's idea of it follows ours. mu guards the fields for shorter readers.
	change  sync.Mutex
	mu      sync.Mutex
	topics  map[string]*topic
	conn    *redis.PubSub
	fault   error // why there is no connection that works
	closed  bool
	pending map[string]int // subscribes sent on conn and not yet confirmed
	// active tells that listen runs; listening is closed when its last run ends.
	active    bool
	listening chan struct{}
}

// topic is a channel somebody listens to.
type topic struct {
	subs      map[*subscription]bool
	ready     chan struct{} // closed at the first confirmation
	confirmed bool
}

func newHub(b *Backend) *hub {
	return &hub{b: b, topics: map[string]*topic{}, pending: map[string]int{}}
}

// add starts listening for s and gives channels that close as the server has
// confirmed it.
func (h *hub) add(s *subscription) []<-chan struct{} {
	h.change.Lock()
	defer h.change.Unlock()
	var fresh []string
	var ready []<-chan struct{}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil // Wakes finds out by itself
	}
	for channel := range s.queues {
		t := h.topics[channel]
		if t == nil {
			t = &topic{subs: map[*subscription]bool{}, ready: make(chan struct{})}
			h.topics[channel] = t
			fresh = append(fresh, channel)
		}
		t.subs[s] = true
		ready = append(ready, t.ready)
	}
	conn, start := h.conn, !h.active && len(h.topics) > 0
	if start {
		h.active, h.listening = true, make(chan struct{})
	}
	listening := h.listening
	if conn != nil {
		for _, channel := range fresh {
			h.pending[channel]++
		}
	}
	h.mu.Unlock()
	if start {
		go h.listen(listening)
	} else if conn != nil && len(fresh) > 0 {
		_ = conn.Subscribe(context.Background(), fresh...) // on an error, listen connects again
	}
	return ready
}

// remove stops listening for s.
func (h *hub) remove(s *subscription) {
	h.change.Lock()
	defer h.change.Unlock()
	var stale []string
	h.mu.Lock()
	for channel := range s.queues {
		t := h.topics[channel]
		if t == nil || !t.subs[s] {
			continue
		}
		if delete(t.subs, s); len(t.subs) == 0 {
			delete(h.topics, channel)
			stale = append(stale, channel)
		}
	}
	conn, last := h.conn, len(h.topics) == 0
	h.mu.Unlock()
	switch {
	case conn == nil || len(stale) == 0:
	case last:
		_ = conn.Close()
	default:
		_ = conn.Unsubscribe(context.Background(), stale...) // on an error, listen connects again
	}
}

// close ends the connection and waits for listen.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	conn, listening := h.conn, h.listening
	h.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
	}
	if listening != nil {
		<-listening
	}
}

// listen keeps a connection as long as there are channels, and then closes done.
func (h *hub) listen(done chan<- struct{}) {
	defer close(done)
	for failures := 0; ; failures++ {
		conn, ok, err := h.connect()
		if !ok {
			return
		}
		if err == nil {
			var worked bool
			if worked, err = h.receive(conn); worked {
				failures = 0
			}
		}
		h.mu.Lock()
		h.conn = nil
		idle := len(h.topics) == 0 || h.closed
		h.mu.Unlock()
		if !idle {
			h.report(err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		if idle {
			continue
		}
		select {
		case <-h.b.closing:
		case <-time.After(min(10*time.Millisecond<<min(failures, 8), time.Second)):
		}
	}
}

// report notes that there is no connection, or with nil that there is one again,
// and logs when that changes.
func (h *hub) report(err error) {
	h.mu.Lock()
	before := h.fault
	h.fault = err
	h.mu.Unlock()
	switch {
	case err != nil && before == nil:
		h.b.opts.Logger.Warn("rota: wake-ups do not come in; until they do, new jobs are found by polling", "error", storeError("subscribe", err))
	case err == nil && before != nil:
		h.b.opts.Logger.Info("rota: wake-ups come in again")
	}
}

// trouble tells why the server confirms nothing.
func (h *hub) trouble() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault == nil {
		return fmt.Errorf("redis: wakes: %w: the server has not confirmed the subscription within %s", core.ErrUnavailable, confirmPatience)
	}
	return storeError("wakes", h.fault)
}

// connect subscribes a new connection to all channels. It answers false when
// there is nothing to listen to any more.
func (h *hub) connect() (*redis.PubSub, bool, error) {
	h.change.Lock()
	defer h.change.Unlock()
	h.mu.Lock()
	if h.closed || len(h.topics) == 0 {
		h.active = false
		h.mu.Unlock()
		return nil, false, nil
	}
	channels := slices.Collect(maps.Keys(h.topics))
	clear(h.pending)
	for _, channel := range channels {
		h.pending[channel] = 1
	}
	conn := h.b.client.Subscribe(context.Background())
	h.conn = conn
	h.mu.Unlock()
	if err := conn.Subscribe(context.Background(), channels...); err != nil {
		_ = conn.Close()
		return nil, true, err
	}
	return conn, true, nil
}

// silence is how long the connection may say nothing before it is asked, and
// then before it counts as broken.
const silence = 5 * time.Second

// receive reads until the connection breaks, and reports whether anything came.
func (h *hub) receive(conn *redis.PubSub) (worked bool, err error) {
	asked := false
	for {
		msg, err := conn.ReceiveTimeout(context.Background(), silence)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && !asked {
			asked = true
			if err := conn.Ping(context.Background()); err != nil {
				return worked, err
			}
			continue
		}
		if err != nil {
			return worked, err
		}
		if !worked {
			h.report(nil)
		}
		asked, worked = false, true
		switch m := msg.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				h.confirm(m.Channel)
			}
		case *redis.Message:
			h.dispatch(m.Channel, m.Payload)
		}
	}
}

// confirm notes that the server has a channel. When it had it before, on another
// connection, hints may have been lost.
func (h *hub) confirm(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[channel]--
	t := h.topics[channel]
	if t == nil || h.pending[channel] > 0 {
		return
	}
	if !t.confirmed {
		t.confirmed = true
		close(t.ready)
		return
	}
	for s := range t.subs {
		s.put(core.Wake{Kind: core.WakeReady, Queue: s.queues[channel]})
	}
}

// dispatch hands a message on: "r" for ready, "c" or "f" and a job's id for
// cancelled and finished.
func (h *hub) dispatch(channel, payload string) {
	if payload == "" {
		return
	}
	kind := map[byte]core.WakeKind{'r': core.WakeReady, 'c': core.WakeCancel, 'f': core.WakeFinished}[payload[0]]
	if kind == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[channel]; t != nil {
		for s := range t.subs {
			s.put(core.Wake{Kind: kind, Queue: s.queues[channel], JobID: payload[1:]})
		}
	}
}
