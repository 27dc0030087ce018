package rotaredis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

// Wakes delivers hints by Redis pub/sub; see core.Waker. All subscriptions of the
// backend share one connection. When it breaks it is made again, and as hints may
// have been lost meanwhile, every queue gets a WakeReady.
func (b *Backend) Wakes(ctx context.Context, queues ...string) (<-chan core.Wake, error) {
	s := newSubscription()
	for _, queue := range queues {
		if err := core.CheckQueue(queue); err != nil {
			return nil, err
		}
		s.queues[b.channel(queue)] = queue
	}
	ready, err := await(ctx, b, func(context.Context) ([]<-chan struct{}, error) {
		return b.hub.add(s), nil
	}, func([]<-chan struct{}) { b.hub.remove(s) })
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(confirmPatience)
	defer patience.Stop()
	for _, confirmed := range ready {
		select {
		case <-confirmed:
		case <-patience.C:
			b.hub.remove(s)
			return nil, b.hub.trouble()
		case <-ctx.Done():
			b.hub.remove(s)
			return nil, fmt.Errorf("redis: wakes: %w", context.Cause(ctx))
		case <-b.closing:
			b.hub.remove(s)
			return nil, fmt.Errorf("redis: wakes: %w", core.ErrClosed)
		}
	}
	if err := b.begin(ctx); err != nil {
		b.hub.remove(s)
		return nil, err
	}
	go func() {
		defer b.calls.Done()
		defer close(s.out)
		defer b.hub.remove(s)
		s.deliver(ctx, b.closing)
	}()
	return s.out, nil
}

// confirmPatience is how long Wakes waits for the server to confirm. Whoever gets
// the error polls, and may ask again.
const confirmPatience = 2 * time.Second

// maxWaiting bounds the hints that wait for a reader who does not read.
const maxWaiting = 10_000

// subscription carries hints to one reader. They wait in a list, in which those of
// kind WakeReady stand once per queue.
type subscription struct {
	queues map[string]string // by channel
	out    chan core.Wake
	added  chan struct{} // capacity 1: something is waiting

	mu      sync.Mutex
	waiting []core.Wake
}

func newSubscription() *subscription {
	return &subscription{queues: map[string]string{}, out: make(chan core.Wake), added: make(chan struct{}, 1)}
}

func (s *subscription) put(w core.Wake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.Kind == core.WakeReady && slices.Contains(s.waiting, w) {
		return
	}
	if len(s.waiting) >= maxWaiting {
		s.waiting = slices.Delete(s.waiting, 0, 1)
	}
	s.waiting = append(s.waiting, w)
	select {
	case s.added <- struct{}{}:
	default:
	}
}

func (s *subscription) take() (core.Wake, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return core.Wake{}, false
	}
	w := s.waiting[0]
	s.waiting = s.waiting[1:]
	return w, true
}

func (s *subscription) deliver(ctx context.Context, closing <-chan struct{}) {
	for {
		w, ok := s.take()
		if !ok {
			select {
			case <-s.added:
			case <-ctx.Done():
				return
			case <-closing:
				return
			}
			continue
		}
		select {
		case s.out <- w:
		case <-ctx.Done():
			return
		case <-closing:
			return
		}
	}
}
