package core

import "time"

// NewJob describes a job to publish. Queue (or Topic) must be set; every other
// zero value is a default.
type NewJob struct {
	// Queue is where the job goes. With Topic set it is the queue to fall back to
	// when nobody is bound to the topic.
	Queue string
	// Topic publishes one copy into every queue bound to it (see [Binder]), all of
	// them or none.
	Topic string
	// ID is unique in the queue. Empty: a UUIDv7 is made. No name of a job (ID,
	// Kind, Group, dedup key) may be blank: nothing but spaces.
	ID string
	// Kind names the sort of work; may be empty.
	Kind string
	// Payload is opaque, at most [Limits.MaxPayload] bytes.
	Payload []byte
	// Headers are opaque; keys and values must be valid UTF-8.
	Headers map[string]string
	// Group is the FIFO lane; empty for none.
	Group string
	// Priority is 0 to MaxPriority, the highest served first. In a group that has
	// jobs already, the group's priority stands.
	Priority int
	// Delay is added to the store's clock; RunAt is an absolute time, compared
	// with the store's clock. At most one of them may be set. A RunAt in the past
	// means now.
	Delay time.Duration
	RunAt time.Time
	// MaxAttempts: 0 takes the queue's, Unlimited has no end.
	MaxAttempts int
	// Timeout bounds one run of the handler, Deadline all of them. Zero: none.
	Timeout  time.Duration
	Deadline time.Time
	// Retention is how long the job is kept once completed: 0 takes the queue's,
	// [None] removes it at once.
	Retention time.Duration
	// Policies of this job; zero takes the queue's.
	OnFailure   FailurePolicy
	OnExhausted ExhaustedPolicy
	Scheduling  SchedulePolicy
	// Dedup, when its Key is set, lets the store refuse a second such job.
	Dedup Dedup
}

// Dedup makes the store decide, in one step with the insert, whether a job is a
// second copy of another in the same queue. The first publish takes the key.
// The key is free again when the holder leaves the states in While or when
// Window is over, whichever comes first.
type Dedup struct {
	// Key is any text of the publisher's choice; empty: no dedup.
	Key string
	// While is the set of states of the holder in which the key stays taken.
	// Usual sets: [Unstarted] ("until started"), [Unfinished] ("until finished").
	// Zero means Unfinished, or AnyState when Window is set ("a time window",
	// which outlasts the job).
	While StateSet
	// Window bounds how long the key is taken, counted on the store's clock from
	// the publish; zero: no bound.
	Window time.Duration
	// OnConflict says what a second publish gets.
	OnConflict Conflict
}

// Conflict is what a publish gets whose dedup key is taken.
type Conflict uint8

const (
	// Reject answers a [DuplicateError]. It is the default.
	Reject Conflict = iota
	// ReturnExisting answers the holder's id without an error.
	ReturnExisting
	// AllowAfterFailure publishes and takes the key over when the holder is
	// retrying, dead or cancelled, and rejects otherwise.
	AllowAfterFailure
	// ReplacePending gives a holder that has not started (scheduled or pending)
	// the new payload, headers, kind, timeout and deadline at its old place, and
	// answers its id with Replaced set; it rejects when the holder has started.
	// A holder that is scheduled and out of line also takes the new run time.
	ReplacePending
)

// EffectiveWhile is While with its zero value resolved.
func (d Dedup) EffectiveWhile() StateSet {
	switch {
	case d.While != 0:
		return d.While
	case d.Window > 0:
		return AnyState
	}
	return Unfinished
}

// PublishRequest is a batch of jobs.
type PublishRequest struct {
	Jobs []NewJob
	// AllOrNothing publishes nothing when any job of the batch is a duplicate or
	// has a taken id: those jobs get their error, all others ErrNotPublished.
	// It needs all jobs in queues of one [Family].
	AllOrNothing bool
}

// PublishResult is the outcome of one job of a batch.
type PublishResult struct {
	// ID of the job in the queue: the new one's, or the holder's after
	// ReturnExisting and ReplacePending.
	ID string
	// Queues the job went to: one, or for a topic those that are bound. For a
	// duplicate the one that holds the other job; else empty when Err is set.
	Queues []string
	// Seq of the new job; of the first copy for a topic. Zero for a duplicate.
	Seq int64
	// Existing and Replaced tell that the key was taken and how it ended.
	Existing, Replaced bool
	// Err is nil, a *DuplicateError, ErrNoBinding or ErrNotPublished.
	Err error
}
