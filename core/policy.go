package core

import "time"

// FailurePolicy says what becomes of a group while a failed job waits for its
// retry.
type FailurePolicy uint8

const (
	// FailureDefault takes the queue's setting, and there it means Block.
	FailureDefault FailurePolicy = iota
	// Block keeps the job at the head of its group and parks the group until
	// the delay is over.
	Block
	// Skip takes the job out of the line until the delay is over; the group goes
	// on. When due, the job stands at its old place again, at the front.
	Skip
)

// ExhaustedPolicy says what becomes of a group when a job has no attempts left
// or was settled with [Dead].
type ExhaustedPolicy uint8

const (
	// ExhaustedDefault takes the queue's setting, and there it means DeadLetter.
	ExhaustedDefault ExhaustedPolicy = iota
	// DeadLetter moves the job to the dead letters; the group goes on.
	DeadLetter
	// Hold moves the job to the dead letters and holds its group until a person
	// retries, deletes or cancels that job or releases the group. For a job
	// without a group it is the same as DeadLetter.
	Hold
)

// SchedulePolicy says when a job with a delay joins its group's line.
type SchedulePolicy uint8

const (
	// ScheduleDefault takes the queue's setting, and there it means JoinWhenDue.
	ScheduleDefault SchedulePolicy = iota
	// JoinWhenDue lets the job stand aside; when due it joins the line behind the
	// jobs published before that time.
	JoinWhenDue
	// Strict gives the job its place in the line at once; when its turn comes and
	// it is not yet due, the group waits for it.
	Strict
)

// Defaults of [QueueConfig].
const (
	DefaultHeadStart          = 10 * time.Second
	DefaultMaxAttempts        = 25
	DefaultDeadRetention      = 90 * 24 * time.Hour
	DefaultCancelledRetention = 24 * time.Hour
	DefaultResultTTL          = time.Hour
)

// Values with a meaning of their own.
const (
	// Unlimited as a number of attempts means no end.
	Unlimited = -1
	// Forever as a duration means without a bound.
	Forever time.Duration = 1<<63 - 1
	// None as a duration means explicitly nothing, where zero means the default.
	None time.Duration = -1
)

// QueueConfig holds the settings of a queue. They live in the store, so all
// workers and publishers of a queue agree. The zero value of each field is a
// usable default.
type QueueConfig struct {
	// HeadStart is how far ahead of the present a new group enters: it is served
	// before groups served within the last HeadStart, and no group waits more
	// than HeadStart longer than its turn. So while new groups take all slots, an
	// old one gets a job about once in a HeadStart. 0 means DefaultHeadStart, [None] strict
	// turns, [Forever] "never-claimed groups first".
	HeadStart time.Duration
	// OnFailure, OnExhausted and Scheduling are the policies of jobs that bring
	// none of their own.
	OnFailure   FailurePolicy
	OnExhausted ExhaustedPolicy
	Scheduling  SchedulePolicy
	// MaxAttempts is given to jobs published without one. 0 means
	// DefaultMaxAttempts.
	MaxAttempts int
	// CompletedRetention is how long completed jobs are kept. 0 and [None] mean
	// they are removed as they complete, unless they carry a result.
	CompletedRetention time.Duration
	// DeadRetention is how long dead letters are kept. 0 means
	// DefaultDeadRetention, [None] that they are removed at once.
	DeadRetention time.Duration
	// CancelledRetention is how long cancelled jobs are kept. 0 means
	// DefaultCancelledRetention, [None] that they are removed at once.
	CancelledRetention time.Duration
	// ResultTTL is how long at least a completed job is kept when it carries a
	// result. 0 means DefaultResultTTL, [None] that results do not prolong.
	ResultTTL time.Duration
	// EventTTL is how long events are kept. 0 and [None] mean that no events are
	// written, which is the fastest.
	EventTTL time.Duration
}

// WithDefaults returns the configuration with every zero value replaced by its
// default and every None by zero, so that a backend need not know either.
// HeadStart may be Forever.
func (c QueueConfig) WithDefaults() QueueConfig {
	c.HeadStart = orDefault(c.HeadStart, DefaultHeadStart)
	c.CompletedRetention = orDefault(c.CompletedRetention, 0)
	c.DeadRetention = orDefault(c.DeadRetention, DefaultDeadRetention)
	c.CancelledRetention = orDefault(c.CancelledRetention, DefaultCancelledRetention)
	c.ResultTTL = orDefault(c.ResultTTL, DefaultResultTTL)
	c.EventTTL = orDefault(c.EventTTL, 0)
	if c.MaxAttempts == 0 {
		c.MaxAttempts = DefaultMaxAttempts
	}
	if c.OnFailure == FailureDefault {
		c.OnFailure = Block
	}
	if c.OnExhausted == ExhaustedDefault {
		c.OnExhausted = DeadLetter
	}
	if c.Scheduling == ScheduleDefault {
		c.Scheduling = JoinWhenDue
	}
	return c
}

func orDefault(d, def time.Duration) time.Duration {
	switch {
	case d == 0:
		return def
	case d < 0:
		return 0
	}
	return d
}

// Retain gives how long a job that ends in state is kept, for a configuration
// that went through WithDefaults. jobRetention is the publish's own wish (see
// [NewJob.Retention]) and hasResult whether the job carries a result.
func (c QueueConfig) Retain(state State, jobRetention time.Duration, hasResult bool) time.Duration {
	switch state {
	case StateDead:
		return c.DeadRetention
	case StateCancelled:
		return c.CancelledRetention
	}
	keep := orDefault(jobRetention, c.CompletedRetention)
	if hasResult {
		keep = max(keep, c.ResultTTL)
	}
	return keep
}
