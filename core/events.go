package core

import "time"

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventEnqueued  EventKind = "enqueued"   // published
	EventStarted   EventKind = "started"    // claimed
	EventCompleted EventKind = "completed"  // settled as done
	EventRetried   EventKind = "retried"    // failed, will be tried again
	EventDead      EventKind = "dead"       // became a dead letter
	EventCancelled EventKind = "cancelled"  // ended as cancelled
	EventReleased  EventKind = "released"   // given back or snoozed
	EventLeaseLost EventKind = "lease_lost" // a lease ran out and the claim recovered it
	EventHeld      EventKind = "held"       // the group is held because of this job
	EventRedriven  EventKind = "redriven"   // moved back to pending by a person
	EventDeleted   EventKind = "deleted"    // deleted by a person
)

// Event is something that happened to a job.
type Event struct {
	// Token names the event's place in its queue's stream; see EventFilter.After.
	Token   string
	Kind    EventKind
	At      time.Time // store clock
	Queue   string
	Group   string
	JobID   string
	JobKind string
	Attempt int
	Error   string // of a failure
	Worker  string // the lease's owner, where there is one
}

// EventFilter reads events of one queue in order.
type EventFilter struct {
	Queue string
	// After continues behind the event with this token. Empty starts at the
	// oldest event kept; EventsFromNow starts behind the newest.
	After string
	Limit int // 1 to MaxPage; 0 means DefaultPage
}

// EventsFromNow as EventFilter.After starts behind the newest event.
const EventsFromNow = "$"

// EventPage is one page of events. Next is the token to continue with, also when
// the page is empty.
type EventPage struct {
	Events []Event
	Next   string
}
