package core

// MoveRequest is an act of administration on jobs of one queue: retry, run now,
// redrive, cancel, archive or delete, one job or many.
type MoveRequest struct {
	Queue string
	// To is the target:
	//
	//   - StatePending: run as soon as the group's turn comes. A dead, cancelled,
	//     completed or retrying job returns to its old place; a scheduled job that
	//     is out of line joins it now. When all its attempts are spent, the job
	//     gets one more. Moving the job a group is held by releases the hold.
	//   - StateCancelled: end it. A running job gets CancelRequested, its worker
	//     is told, and it is cancelled as it settles (or if its lease runs out).
	//   - StateDead: make it a dead letter without a failure and without a hold.
	//   - StateGone: delete it.
	To State
	// IDs names the jobs. Then From and Group are not used and a job that can not
	// be moved is reported in MoveResult.Errs.
	IDs []string
	// From, without IDs, moves jobs of this state, oldest first; Group narrows it
	// to one group. At most Limit jobs (1 to MaxPage, 0 means DefaultPage) are
	// moved in one call. A job that can not be moved, as another has its dedup key
	// now, is passed over, and so is a running one that was asked to end before.
	// From must not be To, and from StateRunning only StateCancelled can be reached.
	From  State
	Group string
	Limit int
}

// MoveResult tells what a move did.
type MoveResult struct {
	// Moved counts jobs that changed (or, for a running job, were asked to).
	Moved int
	// More tells that a move by state stopped at its Limit with jobs of that state
	// (and group) left that it has not tried.
	More bool
	// Errs has an entry for each of IDs (when the call fails half-way, for those
	// that were tried): nil, ErrNotFound, a *StateError (already
	// there; or running and To is not StateCancelled), or a *DuplicateError (its
	// dedup key belongs to another job now).
	Errs []error
}

// GroupAct is an act of administration on a group.
type GroupAct uint8

const (
	// PauseGroup stops claims of the group; it may be empty or not exist yet, and
	// stays paused when it drains. A running job goes on.
	PauseGroup GroupAct = iota + 1
	// ResumeGroup undoes PauseGroup.
	ResumeGroup
	// HoldGroup holds the group as an exhausted job would.
	HoldGroup
	// ReleaseGroup ends a hold; the dead job stays dead and the group goes on.
	ReleaseGroup
	// SkipHead cancels the job in front of the group, unless it is running (then
	// ErrWrongState). It ends no hold.
	SkipHead
)
