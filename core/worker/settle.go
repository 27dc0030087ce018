package worker

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// maxSettle is the greatest number of outcomes in one call.
	maxSettle = 1000
	// maxSenders is how many calls of Settle of one queue may be in flight.
	maxSenders = 4
	// slowSettle is when a call counts as slow, so that outcomes no longer wait
	// for its end but go out by another one.
	slowSettle = 25 * time.Millisecond
)

// errStopped is why the worker gives up what is unsettled as it ends.
var errStopped = errors.New("the worker has stopped")

// settler writes the outcomes of one queue. An outcome goes out at once when no
// call is in flight. While one is, outcomes gather and go out together right
// after it: so a group is never held back for a batch, and load makes batches by
// itself. Only when a call is slow do others join it.
//
// The goroutines that make the calls (senders) live as long as there is something
// to send.
type settler struct {
	q *queue

	mu      sync.Mutex
	pending []*Task
	calls   [maxSenders]time.Time // when each sender's call began; zero: no sender
	slow    *time.Timer           // looks after outcomes that wait for a slow call
	looking bool                  // slow is set
	resting bool                  // a sender waits after a failure: no new ones
	backoff backoff
	closed  bool
}

// add takes in an outcome.
func (s *settler) add(t *Task) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.q.giveUp(t, errStopped)
		return
	}
	s.pending = append(s.pending, t)
	s.callSender()
	s.mu.Unlock()
}

// callSender starts a sender unless a call is in flight that is not slow yet.
// Called with the lock.
func (s *settler) callSender() {
	if s.closed || s.resting || len(s.pending) == 0 {
		return
	}
	place := -1
	var latest time.Time
	for i, began := range s.calls {
		if began.IsZero() {
			place = i
		} else if began.After(latest) {
			latest = began
		}
	}
	now := time.Now()
	if wait := slowSettle - now.Sub(latest); !latest.IsZero() && wait > 0 {
		s.lookAgain(wait)
		return
	}
	if place >= 0 {
		s.calls[place] = now
		s.q.w.senders.Go(func() { s.send(place) })
	}
}

// lookAgain makes callSender be called after wait. Called with the lock.
func (s *settler) lookAgain(wait time.Duration) {
	if s.looking {
		return
	}
	s.looking = true
	if s.slow != nil {
		s.slow.Reset(wait)
		return
	}
	s.slow = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looking = false
		s.callSender()
	})
}

// send is the body of a sender.
func (s *settler) send(place int) {
	s.q.w.gather() // so that many outcomes may join the first call
	for batch := s.take(place); batch != nil; batch = s.take(place) {
		if failed := s.q.settleBatch(batch); len(failed) == 0 {
			s.succeeded()
		} else if !s.retry(failed, place) {
			return
		}
	}
}

// take gives what is to be sent next. It gives nil when there is nothing, and then
// the sender is gone.
func (s *settler) take(place int) []*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 || s.closed {
		s.calls[place] = time.Time{}
		return nil
	}
	n := min(len(s.pending), maxSettle)
	batch := s.pending[:n:n]
	s.pending = append(make([]*Task, 0, max(n, 2*(len(s.pending)-n))), s.pending[n:]...)
	s.calls[place] = time.Now()
	return batch
}

func (s *settler) succeeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backoff.reset()
}

// retry takes back what could not be settled and waits for the time to try again.
// Outcomes whose leases have ended are given up. It reports false when another
// sender waits already, and then this one is gone.
func (s *settler) retry(failed []*Task, place int) bool {
	alive := s.q.stillHeld(failed, time.Now())
	s.mu.Lock()
	if s.closed {
		s.calls[place] = time.Time{}
		s.mu.Unlock()
		s.q.giveUpAll(alive, errStopped)
		return false
	}
	s.pending = append(s.pending, alive...)
	if s.resting {
		s.calls[place] = time.Time{}
		s.mu.Unlock()
		return false
	}
	s.resting = true
	pause := s.backoff.next()
	s.mu.Unlock()
	sleep(s.q.w.ops, pause)
	s.mu.Lock()
	s.resting = false
	s.mu.Unlock()
	return true
}

// stillHeld gives up the tasks whose leases have ended, and returns the others.
func (q *queue) stillHeld(tasks []*Task, now time.Time) []*Task {
	var over []*Task
	q.leases.mu.Lock()
	tasks = slices.DeleteFunc(tasks, func(t *Task) bool {
		ended := !now.Before(t.end)
		if ended {
			over = append(over, t)
		}
		return ended
	})
	q.leases.mu.Unlock()
	q.giveUpAll(over, errTooLate)
	return tasks
}

// close ends the settler: what is pending is given up.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	left := s.pending
	s.pending = nil
	if s.slow != nil {
		s.slow.Stop()
	}
	s.mu.Unlock()
	s.q.giveUpAll(left, errStopped)
}
