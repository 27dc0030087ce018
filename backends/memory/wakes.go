package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/rota-queue/rota/core"
)

// subscription carries hints to one reader. Hints wait in an unbounded list, in
// which those of kind WakeReady stand once per queue.
type subscription struct {
	queues map[string]bool
	out    chan core.Wake
	added  chan struct{} // capacity 1: there is something in pending
	done   chan struct{}
	once   sync.Once

	mu      sync.Mutex
	pending []core.Wake
}

// Wakes delivers hints; see core.Waker.
func (b *Backend) Wakes(ctx context.Context, queues ...string) (<-chan core.Wake, error) {
	s := &subscription{
		queues: map[string]bool{}, out: make(chan core.Wake),
		added: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, name := range queues {
		if err := core.CheckQueue(name); err != nil {
			return nil, err
		}
		s.queues[name] = true
	}
	_, unlock, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	b.subs[s] = struct{}{}
	b.subsDone.Go(func() { b.deliver(ctx, s) })
	return s.out, nil
}

func (s *subscription) end() { s.once.Do(func() { close(s.done) }) }

// deliver runs until the subscription ends.
func (b *Backend) deliver(ctx context.Context, s *subscription) {
	defer close(s.out)
	defer func() {
		b.mu.Lock()
		delete(b.subs, s)
		b.mu.Unlock()
	}()
	for {
		w, ok := s.take()
		var out chan core.Wake
		if ok {
			out = s.out
		}
		select {
		case out <- w:
			s.drop()
		case <-s.added:
		case <-ctx.Done():
			return
		case <-s.done:
			return
		}
	}
}

func (s *subscription) take() (core.Wake, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return core.Wake{}, false
	}
	return s.pending[0], true
}

func (s *subscription) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = s.pending[1:]
}

// wake hands a hint to all who listen to its queue. The caller holds b.mu.
func (b *Backend) wake(w core.Wake) {
	for s := range b.subs {
		if s.queues[w.Queue] {
			s.put(w)
		}
	}
}

func (s *subscription) put(w core.Wake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.Kind == core.WakeReady && slices.Contains(s.pending, w) {
		return
	}
	s.pending = append(s.pending, w)
	select {
	case s.added <- struct{}{}:
	default:
	}
}
