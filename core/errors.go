package core

import (
	"errors"
	"fmt"
)

// Errors a caller decides on. Backends wrap them with the values at hand; test
// with [errors.Is].
var (
	// ErrLeaseLost: the token is stale. The write changed nothing.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled is the cause of a handler's context when a person cancelled
	// its job.
	ErrCancelled = errors.New("job cancelled")
	// ErrDuplicate: the dedup key is taken; see [DuplicateError].
	ErrDuplicate = errors.New("duplicate job")
	// ErrIDTaken: the queue holds a job with this id; see [DuplicateError].
	ErrIDTaken = errors.New("job id taken")
	// ErrNotFound: no such job, queue, group or record.
	ErrNotFound = errors.New("not found")
	// ErrQueuePaused: a claim met a paused queue.
	ErrQueuePaused = errors.New("queue paused")
	// ErrWrongState: the job's state does not allow the act; see [StateError].
	ErrWrongState = errors.New("wrong state")
	// ErrQueueNotEmpty: the queue holds unfinished jobs and the caller did not
	// insist.
	ErrQueueNotEmpty = errors.New("queue not empty")
	// ErrConflict: a record has another version than the caller thought.
	ErrConflict = errors.New("version conflict")
	// ErrNoBinding: nobody is bound to the topic and the publish named no queue
	// to fall back to.
	ErrNoBinding = errors.New("no binding")
	// ErrInvalid: an argument breaks a documented rule; see [InvalidError].
	ErrInvalid = errors.New("invalid argument")
	// ErrClosed: the backend, worker or subscriber has been closed.
	ErrClosed = errors.New("closed")
	// ErrUnsupported: this backend can not do it; its Capabilities say so.
	ErrUnsupported = errors.New("not supported")
	// ErrUnavailable: the store can not be reached or can not take writes now.
	// Whether the operation was done is unknown unless the message says so.
	ErrUnavailable = errors.New("store unavailable")
	// ErrMisconfigured: the store answers but must not be used as it is set up:
	// too old, read-only, wrong credentials, out of memory.
	ErrMisconfigured = errors.New("store misconfigured")
)

// InvalidError names the argument and the value that broke a rule. It matches
// [ErrInvalid].
type InvalidError struct {
	Field  string // such as "group"
	Value  string // the offending value, shortened and quoted
	Reason string // such as "is longer than 512 bytes"
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("invalid argument: %s %s", e.Field, e.Reason)
	}
	return fmt.Sprintf("invalid argument: %s %s %s", e.Field, e.Value, e.Reason)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Invalid makes an [InvalidError]; value is quoted and cut to 64 bytes. A nil
// value is left out.
func Invalid(field string, value any, reason string) *InvalidError {
	e := &InvalidError{Field: field, Reason: reason}
	switch v := value.(type) {
	case nil:
	case string:
		if len(v) > 64 {
			v = v[:64] + "..."
		}
		e.Value = fmt.Sprintf("%q", v)
	default:
		e.Value = fmt.Sprint(v)
	}
	return e
}

// DuplicateError says which job stands in the way of a publish. It matches
// [ErrDuplicate] when a dedup key is taken and [ErrIDTaken] when an id is.
type DuplicateError struct {
	Queue string
	Key   string // the dedup key, empty when the id is taken
	ID    string // the job that is there already
}

func (e *DuplicateError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("job id taken: queue %q already holds job %q", e.Queue, e.ID)
	}
	return fmt.Sprintf("duplicate job: key %q in queue %q is held by job %q", e.Key, e.Queue, e.ID)
}

// Is matches ErrDuplicate or ErrIDTaken.
func (e *DuplicateError) Is(target error) bool {
	if e.Key == "" {
		return target == ErrIDTaken
	}
	return target == ErrDuplicate
}

// StateError says that a job is in a state the act does not allow. It matches
// [ErrWrongState].
type StateError struct {
	Queue, ID string
	State     State
}

func (e *StateError) Error() string {
	return fmt.Sprintf("wrong state: job %q in queue %q is %s", e.ID, e.Queue, e.State)
}

// Is makes errors.Is(err, ErrWrongState) true.
func (e *StateError) Is(target error) bool { return target == ErrWrongState }
