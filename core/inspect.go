package core

import "time"

// QueueInfo is a snapshot of a queue.
type QueueInfo struct {
	Queue  string
	Paused bool
	// Config as it was set, without the defaults filled in.
	Config QueueConfig
	// Jobs counts jobs by state; a state with none may be absent.
	Jobs map[State]int64
	// ByPriority counts unfinished jobs by the tier in force.
	ByPriority [MaxPriority + 1]int64
	// Groups counts groups that hold jobs, or are paused or held.
	Groups int64
	// OldestPending is the publish time of the oldest job in state pending; zero
	// when there is none.
	OldestPending time.Time
	// Now is the store's clock.
	Now time.Time
}

// DayStats counts what happened to a queue's jobs in one UTC day of the store's
// clock. They are kept for [StatsDays] days.
type DayStats struct {
	Day       time.Time // midnight UTC
	Completed int64     // jobs completed
	Failed    int64     // failed attempts, leases that ran out included
	Dead      int64     // jobs that became dead letters
	Cancelled int64
}

// StatsDays is for how many days daily counters are kept.
const StatsDays = 90

// JobFilter chooses jobs of one queue for a listing. Order within a state:
// scheduled and retrying by run time, pending by place in line, running by
// claim time, final states by finish time; ties by Seq.
type JobFilter struct {
	Queue string
	// State is the state to list; required unless Group is set.
	State State
	// Group lists only jobs of this group. With State unset it lists the group's
	// line: its unfinished jobs that stand in line, the head first.
	Group string
	// Kind lists only jobs of this kind.
	Kind string
	// Newest turns the order round.
	Newest bool
	// Limit is the size of a page, 1 to MaxPage; 0 means DefaultPage.
	Limit int
	// Cursor continues a listing from JobPage.Next. A job that stays in its state
	// is listed exactly once in a walk over all pages.
	Cursor string
}

// JobPage is one page. Group and Kind are filtered while scanning, so a page may
// hold fewer jobs than Limit though more follow; an empty Next ends the listing.
type JobPage struct {
	Jobs []*Job
	Next string
}

// Sizes of listings.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// GroupInfo is a snapshot of a group.
type GroupInfo struct {
	Queue    string
	Group    string
	Priority int
	// Depth counts unfinished jobs in line, the running one included.
	Depth int64
	// Head is the id of the job in front: the running one, or the next to run.
	Head string
	// Lease is set while the group is leased (its Until may have passed: then the
	// next claim takes the group over).
	Lease *LeaseInfo
	// DueSince is since when the group has been due; a time ahead is the end of
	// its delay or lease. Zero while paused or held.
	DueSince time.Time
	// OldestAt is the publish time of the head.
	OldestAt time.Time
	// Paused by a person; held because of the job HeldBy.
	Paused, Held bool
	HeldBy       string
}

// GroupFilter lists the groups of one queue in the order of their names.
type GroupFilter struct {
	Queue  string
	Limit  int    // 1 to MaxPage; 0 means DefaultPage
	Cursor string // from GroupPage.Next
}

// GroupPage is one page; an empty Next ends the listing.
type GroupPage struct {
	Groups []GroupInfo
	Next   string
}
