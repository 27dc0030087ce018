package rotapostgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// hub is the one connection of a backend that listens. It is open as long as
// somebody wants hints.
type hub struct {
	b *Backend

	mu      sync.Mutex
	subs    map[*subscription]struct{}
	running bool
	wanted  chan struct{} // closed when nobody wants hints any more
	ready   chan struct{} // closed while the server is listened to
}

func newHub(b *Backend) *hub {
	return &hub{b: b, subs: map[*subscription]struct{}{}}
}

// add starts listening for s; the channel closes as the server does listen.
func (h *hub) add(s *subscription) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[s] = struct{}{}
	if h.b.opts.Notify == NotifyOff {
		done := make(chan struct{})
		close(done)
		return done
	}
	if len(h.subs) == 1 {
		h.wanted = make(chan struct{})
	}
	if !h.running && h.b.begin(context.Background()) == nil {
		h.running = true
		h.ready = make(chan struct{})
		go h.run()
	}
	return h.ready
}

func (h *hub) remove(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.subs[s]; !ok {
		return
	}
	delete(h.subs, s)
	if len(h.subs) == 0 && h.wanted != nil {
		close(h.wanted)
		h.wanted = nil
	}
}

// deliver hands a hint to all who want those of its queue.
func (h *hub) deliver(w core.Wake) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		if s.queues[w.Queue] {
			s.put(w)
		}
	}
}

// run listens as long as somebody wants hints, over any number of connections.
func (h *hub) run() {
	defer h.b.calls.Done()
	again := false
	for failures := 0; ; failures++ {
		h.mu.Lock()
		wanted := h.wanted
		if wanted == nil || h.b.base.Err() != nil {
			h.running = false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		ctx, cancel := context.WithCancel(h.b.base)
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			select {
			case <-wanted:
				cancel()
			case <-ctx.Done():
			}
		}()
		if h.listen(ctx, again) {
			failures, again = 0, true
		}
		cancel()
		<-stop
		timer := time.NewTimer(min(10*time.Millisecond<<min(failures, 8), time.Second))
		select {
		case <-h.b.base.Done():
		case <-wanted:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// silence is how long the connection may say nothing before it is asked.
const silence = 15 * time.Second

// listen uses one connection until it breaks or ctx ends, and reports whether it
// came to listen at all. After a break, hints may have been lost, so all queues get
// one.
func (h *hub) listen(ctx context.Context, again bool) (worked bool) {
	conn, err := h.connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			h.b.opts.Logger.Warn("rota: no connection to listen for hints; workers poll until there is one", "error", err)
		}
		return false
	}
	defer hangUp(conn)
	h.mu.Lock()
	select {
	case <-h.ready:
	default:
		close(h.ready)
	}
	if again {
		for s := range h.subs {
			for queue := range s.queues {
				s.put(core.Wake{Kind: core.WakeReady, Queue: queue})
			}
		}
	}
	h.mu.Unlock()
	for {
		wait, cancel := context.WithTimeout(ctx, silence)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			if w, ok := parseHint(n.Payload); ok {
				h.deliver(w)
			}
		case ctx.Err() != nil:
			return true
		case errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed():
			ping, cancel := context.WithTimeout(ctx, silence)
			err := conn.Ping(ping)
			cancel()
			if err != nil {
				return true
			}
		default:
			return true
		}
	}
}

func (h *hub) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var conn *pgx.Conn
	var err error
	if h.b.opts.ListenURL != "" {
		conn, err = pgx.Connect(ctx, h.b.opts.ListenURL)
	} else {
		conn, err = h.b.connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channelOf(h.b.opts.Schema)}.Sanitize()); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}
