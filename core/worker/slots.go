package worker

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quick is how long handlers may take on average for a worker to claim ahead:
	// about what a claim takes.
	quick = time.Millisecond
	// slow is what the average is set to when nothing is known about it, or when
	// it turned out to be wrong.
	slow = 50 * time.Millisecond
	// patience is how long a task may wait for a slot before it is given back.
	patience = 20 * time.Millisecond
	// The default of Config.Prefetch is eight for each slot, within these.
	leastPrefetch, mostPrefetch = 32, 256
)

// slots are where handlers run. While handlers are quicker than a call to the
// store, slots would stand empty during each claim; then claims ask for more jobs
// than there are free slots, and those wait here for a moment.
type slots struct {
	n    int // how many there are
	most int // how many tasks may wait

	pace atomic.Int64 // moving average of what handlers take, in nanoseconds

	mu      sync.Mutex
	busy    int // slots in use
	waiting []*Task
	alarm   *time.Timer // gives tasks back
}

func (s *slots) init(c *Config) {
	s.n, s.most = c.Concurrency, max(c.Prefetch, 0) // core.None is negative
	if c.Strict && len(c.Queues) > 1 {
		s.most = 0 // what waits would be before what is to be first
	}
	s.pace.Store(int64(slow))
}

// ahead is how many jobs may be claimed beyond the free slots.
func (s *slots) ahead() int {
	if s.pace.Load() > int64(quick) {
		return 0
	}
	return s.most
}

// took notes what a handler took: one that keeps others waiting counts at once and
// for long, as more of its kind may come. Calls at the same time may lose one another.
func (s *slots) took(d time.Duration) {
	pace := s.pace.Load()
	if d >= patience {
		s.pace.Store(max(pace, int64(slow)))
		return
	}
	s.pace.Store(pace + (int64(d)-pace)/32)
}

// start runs a task in a free slot, or lets it wait for one.
func (s *slots) start(t *Task, now time.Time) {
	if !s.take(t, now) {
		t.finish(Release())
	}
}

// take reports false when there is no free slot and the worker stops.
func (s *slots) take(t *Task, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy < s.n {
		s.busy++
		t.q.w.starting.Add(1)
		go s.serve(t)
		return true
	}
	if t.q.w.isStopping() { // close, which comes after that, may be over
		return false
	}
	t.waits = now
	if s.waiting = append(s.waiting, t); len(s.waiting) == 1 {
		s.setAlarm(patience)
	}
	return true
}

// serve is the goroutine of a slot: it runs a task, and then those that wait.
func (s *slots) serve(t *Task) {
	t.q.w.starting.Add(-1)
	left := false
	defer func() {
		if left {
			return
		}
		if next := s.next(); next != nil { // the handler ended the goroutine
			next.q.w.starting.Add(1)
			go s.serve(next)
		}
	}()
	for ; t != nil; t = s.next() {
		t.run()
	}
	left = true
}

// next gives the task that has waited longest, or frees the slot.
func (s *slots) next() *Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.busy--
		return nil
	}
	return s.pop()
}

// pop takes out the first that waits. Called with the lock.
func (s *slots) pop() *Task {
	t := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	return t
}

// setAlarm makes giveBack be called after d. Called with the lock.
func (s *slots) setAlarm(d time.Duration) {
	if s.alarm == nil {
		s.alarm = time.AfterFunc(d, func() { s.giveBack(time.Now().Add(-patience)) })
		return
	}
	s.alarm.Reset(d)
}

// giveBack gives tasks back that have waited since before: their groups go to
// whoever has a slot.
func (s *slots) giveBack(before time.Time) {
	var back []*Task
	s.mu.Lock()
	for len(s.waiting) > 0 && !s.waiting[0].waits.After(before) {
		back = append(back, s.pop())
	}
	if len(s.waiting) > 0 {
		s.setAlarm(s.waiting[0].waits.Sub(before))
	}
	s.mu.Unlock()
	if len(back) > 0 {
		s.pace.Store(int64(slow))
	}
	for _, t := range back {
		t.finish(Release())
	}
}

// close gives all back that wait.
func (s *slots) close() { s.giveBack(time.Now()) }

// inUse tells how many handlers run, and how many tasks wait for a slot.
func (s *slots) inUse() (busy, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy, len(s.waiting)
}
