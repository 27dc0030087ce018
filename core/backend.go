package core

import (
	"context"
	"time"
)

// Backend is a store of jobs. It is split by reader: most code should ask only
// for the part it uses. All methods are safe for concurrent use, honour their
// context, validate with the Validate methods of their arguments before they
// touch the store, and answer ErrClosed after Close.
type Backend interface {
	Producer
	Leaser
	Inspector
	Administrator
	Binder
	Recorder
	Waker
	EventReader
	// Capabilities says what the store does natively. It does not change.
	Capabilities() Capabilities
	// Now reads the store's clock.
	Now(ctx context.Context) (time.Time, error)
	// Close ends everything the backend started and waits for it. A client or
	// pool that the caller gave stays open. Close is idempotent.
	Close() error
}

// Capabilities says what a backend does natively.
type Capabilities struct {
	// Name of the store, such as "redis".
	Name string
	// Transactions: the backend has methods to publish and settle in a
	// transaction of the caller.
	Transactions bool
	// PushWakeups: Wakes delivers hints without polling.
	PushWakeups bool
	// ChangeFeed: the store pushes events; without it Follow polls.
	ChangeFeed bool
}

// Producer publishes jobs.
type Producer interface {
	// Publish stores a batch. An error means that the batch may or may not have
	// been stored as a whole (jobs with ids of their own can be published again
	// safely); without an error each job has its own result. The jobs of one
	// [Family] of queues are stored together or not at all; they get places in
	// line in the order of the batch. A group that is leased, parked, paused or
	// held is not made claimable by it.
	Publish(ctx context.Context, req PublishRequest) ([]PublishResult, error)
}

// Leaser hands out groups and takes them back.
type Leaser interface {
	// Claim leases up to Max groups that are due. A lease that has run out is
	// taken over by the claim itself: the interrupted attempt is recorded as a
	// failure, and a job without attempts left is made dead by its policy instead
	// of being handed out. A paused queue answers ErrQueuePaused, a queue that does
	// not exist an empty result.
	Claim(ctx context.Context, req ClaimRequest) (ClaimResult, error)
	// Settle ends leases of one queue, each by itself: results[i] belongs to
	// outcomes[i], and one stale lease does not hinder the others. An error means
	// that it is not known which were settled; settling again is safe.
	Settle(ctx context.Context, queue string, outcomes []Outcome) ([]SettleResult, error)
	// Extend prolongs leases of one queue so that each lasts for lease from now.
	Extend(ctx context.Context, queue string, leases []LeaseRef, lease time.Duration) ([]Extension, error)
	// Save changes a running job without ending its lease: progress, a partial
	// result, headers. It answers ErrLeaseLost when the token is stale.
	Save(ctx context.Context, lease LeaseRef, patch Patch) error
}

// Inspector looks without changing anything.
type Inspector interface {
	// Queues lists the names of all queues, sorted.
	Queues(ctx context.Context) ([]string, error)
	// QueueInfo describes a queue, or answers ErrNotFound.
	QueueInfo(ctx context.Context, queue string) (QueueInfo, error)
	// Stats gives the last days (1 to StatsDays) of daily counters, today last.
	Stats(ctx context.Context, queue string, days int) ([]DayStats, error)
	// Job gives one job, or ErrNotFound.
	Job(ctx context.Context, queue, id string) (*Job, error)
	// Jobs lists jobs.
	Jobs(ctx context.Context, f JobFilter) (JobPage, error)
	// Group describes a group, or answers ErrNotFound when it holds no unfinished
	// job in line and is neither paused nor held.
	Group(ctx context.Context, queue, group string) (GroupInfo, error)
	// Groups lists groups.
	Groups(ctx context.Context, f GroupFilter) (GroupPage, error)
}

// Administrator steers queues, groups and jobs.
type Administrator interface {
	// Configure sets the whole configuration of a queue, which it creates if need
	// be.
	Configure(ctx context.Context, queue string, cfg QueueConfig) error
	// PauseQueue stops claims; publishing and settling go on. ResumeQueue undoes
	// it. Both are idempotent and report whether they changed anything.
	PauseQueue(ctx context.Context, queue string) (bool, error)
	ResumeQueue(ctx context.Context, queue string) (bool, error)
	// DeleteQueue removes a queue with all it holds: ErrNotFound when there is
	// none, ErrQueueNotEmpty when it holds unfinished jobs and force is not set.
	// A running job's lease is lost.
	DeleteQueue(ctx context.Context, queue string, force bool) error
	// ActOnGroup does act on a group.
	ActOnGroup(ctx context.Context, queue, group string, act GroupAct) error
	// Move changes the state of jobs.
	Move(ctx context.Context, req MoveRequest) (MoveResult, error)
	// Update changes the contents of a job that is in one of the states of while
	// (0 means any); else a *StateError. It is not fenced: a holder uses Save.
	Update(ctx context.Context, queue, id string, patch Patch, while StateSet) error
	// Purge removes up to limit (1 to MaxPage, 0 means DefaultPage) finished jobs of the queue whose
	// retention is over, and events and dedup keys that are too old, and reports
	// how many jobs. Workers call it when they have nothing to do.
	Purge(ctx context.Context, queue string, limit int) (int, error)
}

// Binder binds queues to topics, so that one publish reaches all of them.
type Binder interface {
	// Bind makes queue receive a copy of each job published to topic from now on,
	// and creates the queue. Idempotent. Queue and topic must be of one [Family]:
	// the queue is named topic + "@" + something.
	Bind(ctx context.Context, topic, queue string) error
	// Unbind undoes Bind; jobs already in the queue stay. Idempotent.
	Unbind(ctx context.Context, topic, queue string) error
	// Bindings lists the queues bound to a topic, sorted by name.
	Bindings(ctx context.Context, topic string) ([]Binding, error)
}

// Binding is a queue bound to a topic.
type Binding struct {
	Topic, Queue string
	// CreatedAt is when it was bound, on the store's clock.
	CreatedAt time.Time
}

// Recorder keeps records with expiry and counters.
type Recorder interface {
	// PutRecord writes a record and returns it as written.
	PutRecord(ctx context.Context, put PutRecord) (Record, error)
	// GetRecord reads a record, or answers ErrNotFound.
	GetRecord(ctx context.Context, space, key string) (Record, error)
	// DeleteRecord deletes a record: ErrNotFound when there is none, ErrConflict
	// when version is not zero and not the record's.
	DeleteRecord(ctx context.Context, space, key string, version int64) error
	// Records lists records.
	Records(ctx context.Context, f RecordFilter) (RecordPage, error)
	// Increment adds delta to a counter, which starts at zero, and returns the
	// sum. A ttl that is not zero renews its expiry. Counters and records share
	// no names.
	Increment(ctx context.Context, space, key string, delta int64, ttl time.Duration) (int64, error)
}

// WakeKind is what a [Wake] hints at.
type WakeKind uint8

const (
	// WakeReady: there may be work to claim in the queue.
	WakeReady WakeKind = iota + 1
	// WakeCancel: the running job JobID was cancelled by a person.
	WakeCancel
	// WakeFinished: the job JobID, which carries a result, has finished.
	WakeFinished
)

// Wake is a hint. Hints may be lost, doubled or late; polling is the truth.
type Wake struct {
	Kind  WakeKind
	Queue string
	JobID string
}

// Waker delivers hints.
type Waker interface {
	// Wakes delivers hints for the queues until ctx ends or the backend closes;
	// then the channel is closed. When it returns without an error, hints for
	// whatever happens from now on are on their way. A reader that does not keep
	// up loses hints of kind WakeReady only when another one for the same queue is
	// already waiting for it.
	Wakes(ctx context.Context, queues ...string) (<-chan Wake, error)
}

// EventReader reads the event stream of a queue.
type EventReader interface {
	// Events reads a page. It does not wait: [Follow] does.
	Events(ctx context.Context, f EventFilter) (EventPage, error)
}
