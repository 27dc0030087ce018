package rotawatermill

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// The functions below read what a message's context carries about its delivery.
// They work on every context derived from it, also inside middleware, and give
// zero values on any other. worker.FromContext gives the whole task.

// JobFromCtx gives the job behind the message, as it was claimed: do not change
// it. Nil when there is none.
func JobFromCtx(ctx context.Context) *core.Job {
	if task := worker.FromContext(ctx); task != nil {
		return task.Job
	}
	return nil
}

// AttemptFromCtx gives the number of this delivery, 1 for the first. Deliveries
// that were given back unhandled are not counted. More than 1 tells what other
// brokers call "redelivered".
func AttemptFromCtx(ctx context.Context) int {
	if job := JobFromCtx(ctx); job != nil {
		return job.Attempt
	}
	return 0
}

// GroupFromCtx gives the message's group; empty when it has none.
func GroupFromCtx(ctx context.Context) string {
	if job := JobFromCtx(ctx); job != nil {
		return job.Group
	}
	return ""
}

// PublishedAtFromCtx gives when the message was published, on the store's clock.
func PublishedAtFromCtx(ctx context.Context) time.Time {
	if job := JobFromCtx(ctx); job != nil {
		return job.CreatedAt
	}
	return time.Time{}
}

// FenceFromCtx gives a number that grows with every delivery of the group. Hand it
// to systems that the handler writes to, and let them refuse a smaller one than
// they have seen: then a handler that was overtaken does no harm.
func FenceFromCtx(ctx context.Context) int64 {
	if task := worker.FromContext(ctx); task != nil {
		return task.Fence
	}
	return 0
}

// LeaseEndFromCtx gives when the lease of the message ends unless it is renewed
// again, on this process's clock. It moves on as long as the message is neither
// acked nor nacked.
func LeaseEndFromCtx(ctx context.Context) time.Time {
	if task := worker.FromContext(ctx); task != nil {
		return task.LeaseEnd()
	}
	return time.Time{}
}

// RecordErrors is a Router middleware that tells the store why a message was
// nacked: Watermill's Nack carries no reason, and without it the failures of a
// job only say "nacked". Add it first, so that it sees what the others return.
//
// It also lets handlers choose the outcome with the errors that package worker
// makes (worker.RetryAfter, Snooze, Release, DeadLetter), while attempts are left.
func RecordErrors(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			Reason(msg.Context(), err)
		}
		return produced, err
	}
}

// Reason notes why the message of this context is about to be nacked, for code
// that uses no Router; see [RecordErrors]. The last call before the nack counts.
// On another context it does nothing.
func Reason(ctx context.Context, err error) {
	if r, ok := ctx.Value(reasonKey{}).(*reason); ok && err != nil {
		r.Store(&err)
	}
}

type reasonKey struct{}

// reason holds why a message is nacked.
type reason struct{ atomic.Pointer[error] }

// err is the reason, or that there was none.
func (r *reason) err() error {
	if p := r.Load(); p != nil {
		return *p
	}
	return ErrNacked
}
