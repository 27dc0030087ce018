package core

import "time"

// MinLease is the shortest lease a claim or an extension may ask for.
const MinLease = 50 * time.Millisecond

// ClaimRequest asks for work of one queue.
type ClaimRequest struct {
	Queue string
	// Max is how many groups to lease at most; one job of each is handed out.
	// Between 1 and MaxClaimBatch.
	Max int
	// MinPriority is a floor: only groups of this tier or above are taken, and one
	// is found behind any backlog below the floor.
	MinPriority int
	// ByTurn takes the due groups that have waited longest, whatever their tiers
	// above the floor; otherwise higher tiers go first, and a stream of them can
	// keep lower ones waiting for ever. Serve some claims by turn: the worker of
	// this library does.
	ByTurn bool
	// Lease is how long each lease lasts from now; at least MinLease.
	Lease time.Duration
	// Owner is the worker's name, for people.
	Owner string
}

// ClaimResult is what a claim found.
type ClaimResult struct {
	// Leases by tier, the highest first, and by waiting time in a tier.
	Leases []Lease
	// Next is how long it takes, as seen by the store, until something in the
	// queue falls due by itself: a delay, a schedule or a lease that runs out.
	// Zero: nothing is known to. Set only when the claim found less than Max. It
	// may be shorter than the truth, never longer (a later publish may still make
	// it so; wake-ups tell of that).
	Next time.Duration
}

// LeaseRef names a lease for all writes of its holder.
type LeaseRef struct {
	Queue string
	Group string // empty for a job without a group
	JobID string
	Token string // unique over all leases, ever; has a random part
}

// Lease is one claimed group with its job.
type Lease struct {
	LeaseRef
	// Fence grows with every lease of the group, also when the group has drained
	// and come back: handlers give it to conditional writes of their own. It is
	// derived from the store's clock (microseconds).
	Fence int64
	// Until is the end of the lease on the store's clock.
	Until time.Time
	// Job is the head of the group, running, with this attempt counted.
	Job *Job
}

// Action is how a lease ends.
type Action uint8

// The ways to settle. Only a holder whose token is the group's current one
// changes anything; everyone else gets ErrLeaseLost.
const (
	// Complete: the work is done.
	Complete Action = iota + 1
	// Retry: it failed. With attempts left the job waits for Delay by its
	// [FailurePolicy]; with none left it is dead by its [ExhaustedPolicy].
	Retry
	// Release gives the job back at its old place at once; no attempt is spent
	// and nothing is recorded as a failure.
	Release
	// Snooze puts the job off by Delay, at its old place by its FailurePolicy; no
	// attempt is spent.
	Snooze
	// Dead moves the job to the dead letters whatever attempts are left.
	Dead
	// Cancel ends the job as cancelled.
	Cancel
)

var actionNames = [...]string{"", "complete", "retry", "release", "snooze", "dead", "cancel"}

// String gives the lower-case name.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return ""
}

// Patch is a change of a job's contents. The zero value changes nothing.
type Patch struct {
	// Payload replaces the payload when not nil; empty and non-nil empties it.
	Payload []byte
	// SetHeaders are merged in, key by key; DropHeaders are removed after that.
	SetHeaders  map[string]string
	DropHeaders []string
	// Result replaces the stored progress or result when not nil.
	Result []byte
}

// Outcome settles one lease.
type Outcome struct {
	Lease  LeaseRef
	Action Action
	// Delay of a Retry or Snooze; zero means now, behind the other groups that
	// are due.
	Delay time.Duration
	// Error and Trace are recorded as a [Failure] by Retry, Dead and, when Error
	// is not empty, by Cancel and Snooze.
	Error, Trace string
	// Patch is applied in the same step.
	Patch Patch
}

// SettleResult is the outcome of one settled lease.
type SettleResult struct {
	// State is where the job stands now; StateGone when it was not kept.
	State State
	// Err is nil or matches ErrLeaseLost.
	Err error
}

// Extension is the outcome of one extended lease.
type Extension struct {
	// Until is the new end of the lease on the store's clock.
	Until time.Time
	// CancelRequested tells that a person cancelled the job: the handler's
	// context should end, and the lease still has to be settled.
	CancelRequested bool
	// Err is nil or matches ErrLeaseLost.
	Err error
}
