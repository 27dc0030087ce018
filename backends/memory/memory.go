// Package memory is the in-process backend of rota. It keeps every promise of
// the other backends as long as the process lives: it is the embedded default,
// the store for unit tests (also inside a testing/synctest bubble), and the
// reference model that other backends are compared with.
//
// All jobs live in one [Backend] value; share it between the publishers and the
// workers of the process. Nothing is written anywhere: when the process ends, so
// do the jobs.
package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

// Options of a Backend. The zero value is usable.
type Options struct {
	// Limits on the size of payloads. Every method of a backend whose limits are
	// out of bounds answers a *core.InvalidError.
	Limits core.Limits
	// Now is the store's clock; nil means time.Now. Readings are made strictly
	// increasing, so it may stand still or step back.
	Now func() time.Time
}

// Backend is an in-process core.Backend. Make it with [New].
type Backend struct {
	limits core.Limits
	clock  func() time.Time

	mu     sync.Mutex
	closed bool
	last   int64 // the last clock reading, microseconds
	seq    int64 // the last Seq given, shared by all queues
	fence  int64 // the last Fence given, shared by all queues

	queues   map[string]*queue
	kept     map[string]map[string]dedupKey // keys that outlast their deleted queue
	topics   map[string]map[string]int64    // topic -> queue -> bound at
	spaces   map[string]*space
	subs     map[*subscription]struct{}
	subsDone sync.WaitGroup
}

var _ core.Backend = (*Backend)(nil)

// New makes an empty backend.
func New(opts Options) *Backend {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Backend{
		limits: opts.Limits,
		clock:  opts.Now,
		queues: map[string]*queue{},
		kept:   map[string]map[string]dedupKey{},
		topics: map[string]map[string]int64{},
		spaces: map[string]*space{},
		subs:   map[*subscription]struct{}{},
	}
}

// Capabilities says what the backend does natively.
func (b *Backend) Capabilities() core.Capabilities {
	return core.Capabilities{Name: "memory", PushWakeups: true}
}

// Now reads the store's clock.
func (b *Backend) Now(ctx context.Context) (time.Time, error) {
	now, unlock, err := b.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer unlock()
	return timeOf(now), nil
}

// Close ends all subscriptions. Jobs are gone with the last reference.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for s := range b.subs {
		s.end()
	}
	b.mu.Unlock()
	b.subsDone.Wait()
	return nil
}

// begin starts an operation: it checks ctx, takes the lock and reads the clock.
// Each operation has a reading of its own, so that equal times do not hide an
// order that other stores would have.
func (b *Backend) begin(ctx context.Context) (now int64, unlock func(), err error) {
	if err := b.limits.Validate(); err != nil { // New has no error to answer
		return 0, nil, fmt.Errorf("memory backend: %w", err)
	}
	if ctx.Err() != nil {
		return 0, nil, fmt.Errorf("memory backend: %w", context.Cause(ctx))
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, nil, fmt.Errorf("memory backend: %w", core.ErrClosed)
	}
	b.last = max(b.last+1, b.clock().UnixMicro())
	return b.last, b.mu.Unlock, nil
}

// queueOp is begin for an operation on one queue. The queue is nil when it does
// not exist.
func (b *Backend) queueOp(ctx context.Context, name string) (q *queue, now int64, unlock func(), err error) {
	if err := core.CheckQueue(name); err != nil {
		return nil, 0, nil, err
	}
	now, unlock, err = b.begin(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	return b.queues[name], now, unlock, nil
}

func notFound(what, name string) error {
	return fmt.Errorf("%s %q: %w", what, name, core.ErrNotFound)
}

// timeOf turns stored microseconds into a time; zero stays zero.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func (b *Backend) nextSeq(now int64) int64 {
	b.seq = max(b.seq+1, now)
	return b.seq
}

func (b *Backend) nextFence(now int64) int64 {
	b.fence = max(b.fence+1, now)
	return b.fence
}
