package core

import (
	"strings"
	"time"
)

// State is where a job stands. docs/state-machine.md draws the transitions.
type State uint8

// The states of a job. Completed, Dead and Cancelled are final: a job leaves
// them only by an act of administration or when its retention is over.
const (
	// StateUnknown is the zero value and never stored.
	StateUnknown State = iota
	// StateScheduled waits for its time: published with a delay, or snoozed.
	StateScheduled
	// StatePending stands in line.
	StatePending
	// StateRunning is held under a lease.
	StateRunning
	// StateRetrying failed and waits for its retry delay to be over.
	StateRetrying
	// StateCompleted was settled with [Complete].
	StateCompleted
	// StateDead is a dead letter: retries exhausted, or settled with [Dead].
	StateDead
	// StateCancelled was cancelled by its handler or by a person.
	StateCancelled
	// StateGone is no state of a stored job. In a [StateSet] it stands for a
	// job that has been deleted or purged.
	StateGone
)

var stateNames = [...]string{"unknown", "scheduled", "pending", "running", "retrying", "completed", "dead", "cancelled", "gone"}

// String gives the lower-case name used in stores, logs and metrics.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// ParseState is the inverse of [State.String]; it reports false for a name it
// does not know.
func ParseState(name string) (State, bool) {
	for s := StateScheduled; s <= StateGone; s++ {
		if stateNames[s] == name {
			return s, true
		}
	}
	return StateUnknown, false
}

// Finished reports whether the state is final.
func (s State) Finished() bool {
	return s == StateCompleted || s == StateDead || s == StateCancelled
}

// JobStates lists the states a stored job can be in, in the order of life.
func JobStates() []State {
	return []State{StateScheduled, StatePending, StateRunning, StateRetrying, StateCompleted, StateDead, StateCancelled}
}

// StateSet is a set of states.
type StateSet uint16

// Sets with a meaning of their own.
const (
	// Unstarted holds the states of a job no worker has taken yet.
	Unstarted StateSet = 1<<StateScheduled | 1<<StatePending
	// Unfinished holds all states that are not final.
	Unfinished = Unstarted | 1<<StateRunning | 1<<StateRetrying
	// Finished holds the final states.
	Finished StateSet = 1<<StateCompleted | 1<<StateDead | 1<<StateCancelled
	// AnyState holds every state a stored job can be in, and StateGone.
	AnyState = Unfinished | Finished | 1<<StateGone
)

// States makes a set.
func States(states ...State) StateSet {
	var set StateSet
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

// Has reports whether s is in the set.
func (set StateSet) Has(s State) bool { return set&(1<<s) != 0 }

// String lists the names in the set, joined by commas.
func (set StateSet) String() string {
	var names []string
	for s := StateScheduled; s <= StateGone; s++ {
		if set.Has(s) {
			names = append(names, s.String())
		}
	}
	return strings.Join(names, ",")
}

// Job is a job as a store holds it. Values read from a store are the caller's
// own; changing them changes nothing in the store.
type Job struct {
	// ID is unique in its queue among all jobs the store still holds.
	ID string
	// Queue is the queue the job was published to.
	Queue string
	// Kind names what sort of work this is; workers choose a handler by it.
	Kind string
	// Payload is opaque to rota.
	Payload []byte
	// Headers carry what adapters and tracing need beside the payload.
	Headers map[string]string
	// Group is the FIFO lane, or empty.
	Group string
	// Priority is the tier in force, 0 to 4: that of the group for a grouped job.
	Priority int
	// State is where the job stands.
	State State
	// Attempt counts the claims of this job that were not given back with
	// [Release] or [Snooze]; a running job counts its current one.
	Attempt int
	// MaxAttempts is how many attempts the job has; [Unlimited] for no end.
	MaxAttempts int
	// Seq is the job's number in publish order: unique and growing within its
	// queue. It is derived from the store's clock (microseconds) and so keeps
	// growing over deletion of a queue and loss of a store's tail.
	Seq int64
	// RunAt is the earliest time the job may start; for a job that never had to
	// wait it is the time of its publish.
	RunAt time.Time
	// Timeout bounds one run of the handler; zero for none.
	Timeout time.Duration
	// Deadline is when the work stops being of use; zero for never.
	Deadline time.Time
	// Retention is how long a completed job is kept; it is what the publish
	// asked for (see [NewJob.Retention]).
	Retention time.Duration
	// OnFailure, OnExhausted and Scheduling are the publish's own choice; the
	// zero values mean the queue's.
	OnFailure   FailurePolicy
	OnExhausted ExhaustedPolicy
	Scheduling  SchedulePolicy
	// CreatedAt, ClaimedAt and FinishedAt are times of the store's clock: of the
	// publish, of the last claim, and of entering a final state. Zero when it has
	// not happened.
	CreatedAt, ClaimedAt, FinishedAt time.Time
	// Lease is set while the job is running.
	Lease *LeaseInfo
	// CancelRequested is set when a person cancelled the job while it ran.
	CancelRequested bool
	// Failures are the failed attempts, oldest first, the last MaxFailures of
	// them.
	Failures []Failure
	// Result is the last progress or result stored for the job.
	Result []byte
	// DedupKey is the key of its [Dedup], or empty.
	DedupKey string
}

// LeaseInfo tells who holds a running job.
type LeaseInfo struct {
	Owner string    // the worker's name, as given to the claim
	Until time.Time // store clock; passed means anyone may claim the group
	Fence int64     // see [Lease.Fence]
}

// Failure is one failed attempt.
type Failure struct {
	Attempt int       // its number, 1 for the first
	At      time.Time // store clock
	Error   string    // what the handler said, cut at [MaxErrorText] bytes
	Trace   string    // a stack or other detail, cut likewise; usually empty
	Worker  string    // the owner of the lease
}

// LeaseExpired is the [Failure.Error] of an attempt whose worker fell silent.
const LeaseExpired = "lease expired: the worker neither settled nor extended it"
