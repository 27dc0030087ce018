package worker

import (
	"context"
	"fmt"
)

// Handler does the work of a job. What it returns settles the job: nil completes
// it, an error is a failure, and [RetryAfter], [Snooze], [Release], [DeadLetter],
// [CancelJob] and [AlreadySettled] make errors that choose another outcome. A
// panic is a failure.
//
// Handle is called by many goroutines at once, never twice at once for jobs of
// one group. It should return soon after ctx has ended; until it does, it keeps
// its slot.
type Handler interface {
	Handle(ctx context.Context, task *Task) error
}

// HandlerFunc makes a function a [Handler].
type HandlerFunc func(ctx context.Context, task *Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, task *Task) error { return f(ctx, task) }

// isNil reports whether there is nothing to call: also a nil HandlerFunc or *Mux. A
// nil pointer of another type may be a handler that works.
func isNil(h Handler) bool {
	switch h := h.(type) {
	case nil:
		return true
	case HandlerFunc:
		return h == nil
	case *Mux:
		return h == nil
	}
	return false
}

// Mux is a [Handler] that chooses another one by the kind of the job. The zero
// value is ready to use. Register all handlers before the worker starts.
type Mux struct {
	kinds    map[string]Handler
	fallback Handler
}

// On registers the handler for jobs of a kind (the empty kind is one too). It
// panics when the kind has one already or h is nil, as both are mistakes of the
// program.
func (m *Mux) On(kind string, h Handler) {
	if isNil(h) {
		panic(fmt.Sprintf("worker: nil handler for kind %q", kind))
	}
	if _, taken := m.kinds[kind]; taken {
		panic(fmt.Sprintf("worker: second handler for kind %q", kind))
	}
	if m.kinds == nil {
		m.kinds = make(map[string]Handler)
	}
	m.kinds[kind] = h
}

// OnFunc is On for a function.
func (m *Mux) OnFunc(kind string, f func(ctx context.Context, task *Task) error) {
	m.On(kind, HandlerFunc(f))
}

// Fallback sets the handler for all other kinds. Without one, a job of an unknown
// kind fails and is retried: during a roll-out another worker may know it.
func (m *Mux) Fallback(h Handler) {
	if isNil(h) {
		h = nil
	}
	m.fallback = h
}

// Handle calls the handler of the job's kind.
func (m *Mux) Handle(ctx context.Context, task *Task) error {
	if h, ok := m.kinds[task.Job.Kind]; ok {
		return h.Handle(ctx, task)
	}
	if m.fallback != nil {
		return m.fallback.Handle(ctx, task)
	}
	return fmt.Errorf("no handler for jobs of kind %q", task.Job.Kind)
}
