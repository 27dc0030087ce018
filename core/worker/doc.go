// Package worker runs the jobs of a store: it claims groups under leases, calls
// handlers, keeps the leases alive, and settles what the handlers returned.
//
//	w, err := worker.New(store, worker.Config{
//		Queues:  []worker.Queue{{Name: "mail"}},
//		Handler: worker.HandlerFunc(send),
//	})
//	...
//	err = w.Run(ctx) // until ctx ends
//
// # Handlers
//
// A [Handler] gets a [Task]: the job, the fence of its lease, and ways to save
// progress. What it returns settles the job:
//
//	nil                   completed
//	any error             failed; retried by Config.Retry while attempts are left
//	RetryAfter(d, err)    failed; retried after d
//	Snooze(d)             put off by d, no attempt spent
//	Release()             given back at once, no attempt spent
//	DeadLetter(err)       dead letter, whatever attempts are left
//	CancelJob(err)        cancelled
//	AlreadySettled()      nothing to write: the handler did it itself
//
// These errors are found through wrapping. A panic is a failure with the stack in
// its trace; a handler that ends its goroutine has failed too. An error whose own
// methods panic is a plain failure, and a Config.Retry that panics is answered by
// the default delay; both are logged with their stacks. [Mux] chooses
// handlers by the kind of the job, [Typed] decodes payloads, [Middleware] wraps
// all handlers.
//
// A job may run twice: its lease may run out, or its worker may die after the work
// and before the settle. Make handlers idempotent, or give [Task].Fence to the
// system they write to.
//
// # When the context of a handler ends
//
// context.Cause tells why:
//
//   - [core.ErrLeaseLost]: the store said so, or the lease could not be extended
//     until its end on the local monotonic clock. Another worker may hold the
//     group. What the handler returns is not written, only logged and counted.
//   - [core.ErrCancelled]: a person cancelled the job. It is settled as cancelled,
//     unless the handler returns nil or a DeadLetter.
//   - context.DeadlineExceeded (wrapped): the job's timeout is over, or its
//     deadline has passed. The attempt has failed; after the deadline the job is a
//     dead letter, as is one whose deadline passed before it could start.
//   - [ErrStopping]: the worker stops. The job is given back unless the handler
//     completes it or chooses another outcome.
//
// A handler that does not return keeps its slot. Should the store hand out its
// group again meanwhile (its lease was lost), this worker puts that job off for a
// PollInterval rather than run the group twice in one process.
//
// # Claims
//
// One loop claims for all queues, as many groups as there are free slots, and more
// while handlers are quicker than a claim (see Config.Prefetch). A queue
// that had less than that is asked again when something in it falls due, when the
// store hints at work, when this worker has settled a job of it, and every
// PollInterval: polling is the truth, the rest only shortens the wait. Claims that
// fail are tried again after pauses of up to 5 seconds; so is everything else that
// fails, and it is logged when it begins, changes and ends, not each time.
//
// In the share HighRatio of its claims a worker serves groups of higher priority
// first, in the others those that have waited longest, so no group starves.
//
// # Settling
//
// The slot of a job is free as soon as its handler has returned. The outcome goes
// to the store at once, or right after the call in flight with all that came
// meanwhile. While the store can not be reached it is tried again, with the lease
// kept alive, until the lease ends; then it is given up, logged and counted. Claims
// stop while too many outcomes wait.
//
// # A closed backend
//
// A backend that answers [core.ErrClosed] never works again, so the worker stops
// by itself, without StopTimeout: the contexts of its handlers end at once, as no
// outcome can be written any more. [Worker.Run] and [Worker.Stop] answer an error
// that matches core.ErrClosed. Stop the worker first, then close the backend: a
// worker that was stopping already answers only what was lost by it.
//
// # Stopping
//
// When the context of [Worker.Run] ends, or with [Worker.Stop]:
//
//  1. No more claims. What a claim in flight still brings is given back.
//     [Task.Stopping] is closed.
//  2. Handlers may go on for StopTimeout. Their leases are kept alive.
//  3. Their contexts end with [ErrStopping].
//  4. After ReleaseTimeout the worker ends. Leases of handlers that still run are
//     left to run out, not given back, so that no group runs twice; [StopError]
//     tells how many.
//
// # Testing
//
// A worker over backends/memory works inside a testing/synctest bubble; make both
// inside of it.
package worker
