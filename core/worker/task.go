package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

// Task is one run of a job. A handler gets it beside its context, from which
// [FromContext] gives it too. Its methods are safe for concurrent use.
//
// A test of a handler may make one by hand: &Task{Job: job}. Then nothing is
// stored, and progress and result are put into the Job.
type Task struct {
	// Job as it was claimed, with this attempt counted. The handler may keep it
	// but should not change it.
	Job *core.Job
	// Fence grows with every lease of the job's group: see [core.Lease.Fence].
	Fence int64

	q      *queue // nil when made by hand
	ctx    taskContext
	cancel context.CancelCauseFunc
	// endTimer is set when the context has a deadline.
	endTimer context.CancelFunc

	deadline time.Time     // the job's deadline on the local clock; zero: none
	waits    time.Time     // since when it has waited for a slot
	started  time.Time     // when its handler was called; zero: not yet
	ran      time.Duration // how long it took

	// These belong to q.leases.
	stage     stage
	end       time.Time // of the lease, on the local clock
	place     int       // in leases.held
	cancelled bool      // a person cancelled the job

	// mu guards the patch while the handler runs. Once closed is set the outcome
	// belongs to the settler.
	mu      sync.Mutex
	closed  bool
	outcome core.Outcome
	tries   int  // calls of Settle it was part of
	refused bool // the store called the handler's own outcome invalid
}

func newTask(q *queue, lease core.Lease, sent time.Time) *Task {
	t := &Task{Job: lease.Job, Fence: lease.Fence, q: q, end: sent.Add(q.w.cfg.Lease)}
	t.outcome.Lease = lease.LeaseRef
	t.ctx.task = t
	t.ctx.Context, t.cancel = context.WithCancelCause(q.w.base)
	if d := lease.Job.Deadline; !d.IsZero() {
		claimed := lease.Until.Add(-q.w.cfg.Lease) // on the store's clock
		t.deadline = sent.Add(d.Sub(claimed))
	}
	return t
}

// Attempt is the number of this attempt, 1 for the first.
func (t *Task) Attempt() int { return t.Job.Attempt }

// LastAttempt tells that a failure now would leave no attempts.
func (t *Task) LastAttempt() bool {
	return t.Job.MaxAttempts != core.Unlimited && t.Job.Attempt >= t.Job.MaxAttempts
}

// Lease names the lease for writes that the handler makes itself, such as
// settling in a transaction of its own (then return [AlreadySettled]).
func (t *Task) Lease() core.LeaseRef { return t.outcome.Lease }

// LeaseEnd is when the lease ends unless it is extended again, on this process's
// monotonic clock. It moves on with each heartbeat. Zero when made by hand.
func (t *Task) LeaseEnd() time.Time {
	if t.q == nil {
		return time.Time{}
	}
	t.q.leases.mu.Lock()
	defer t.q.leases.mu.Unlock()
	return t.end
}

// Stopping is closed as soon as the worker begins to stop, long before the
// handler's context ends. A handler that waits for something that may not come
// (a reader of a channel, say) can return [Release] then. Nil when made by hand.
func (t *Task) Stopping() <-chan struct{} {
	if t.q == nil {
		return nil
	}
	return t.q.w.stopping
}

// SaveProgress stores bytes with the running job at once, in the place of its
// result. It answers [core.ErrLeaseLost], and the handler's context ends, when
// the lease was lost. Other errors are the store's.
func (t *Task) SaveProgress(ctx context.Context, progress []byte) error {
	if progress == nil {
		progress = []byte{}
	}
	return t.Save(ctx, core.Patch{Result: progress})
}

// Save changes the running job at once; see SaveProgress for the errors.
func (t *Task) Save(ctx context.Context, patch core.Patch) error {
	if t.q == nil {
		if patch.Result != nil {
			t.Job.Result = patch.Result
		}
		return nil
	}
	err := t.q.w.backend.Save(ctx, t.outcome.Lease, patch)
	if errors.Is(err, core.ErrLeaseLost) {
		t.q.leases.lose(t)
	}
	return err
}

// SetResult stores a result together with the outcome, in one step. The last call
// counts; after the handler has returned it does nothing.
func (t *Task) SetResult(result []byte) {
	if result == nil {
		result = []byte{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.q == nil {
		t.Job.Result = result
	} else if !t.closed {
		t.outcome.Patch.Result = result
	}
}

// SetHeader changes a header of the job together with the outcome, in one step;
// it is seen by later attempts and by people who look at a dead letter. After the
// handler has returned it does nothing.
func (t *Task) SetHeader(key, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.outcome.Patch.SetHeaders == nil {
		t.outcome.Patch.SetHeaders = make(map[string]string)
	}
	t.outcome.Patch.SetHeaders[key] = value
}

// closePatch ends the changes that the handler may make to the outcome.
func (t *Task) closePatch() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}

// late reports whether the job's deadline has passed.
func (t *Task) late() bool {
	return !t.deadline.IsZero() && !time.Now().Before(t.deadline)
}

// taskContext is a handler's context. It is a part of the task, so that it costs
// no allocation of its own.
type taskContext struct {
	context.Context
	task *Task
}

type taskKey struct{}

// Value gives the task for taskKey, and else what the parent has.
func (c *taskContext) Value(key any) any {
	if key == (taskKey{}) {
		return c.task
	}
	return c.Context.Value(key)
}

// FromContext gives the task of a handler's context, or nil.
func FromContext(ctx context.Context) *Task {
	task, _ := ctx.Value(taskKey{}).(*Task)
	return task
}

// NewContext makes a context that carries task, for tests of handlers.
func NewContext(ctx context.Context, task *Task) context.Context {
	return &taskContext{Context: ctx, task: task}
}
