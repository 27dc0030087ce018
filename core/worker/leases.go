package worker

import (
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

// stage is how far a task has come.
type stage uint8

const (
	running  stage = iota // its handler runs, or is about to
	settling              // its handler has returned, or will not be called
	lost                  // the lease was lost while the handler ran
	ended                 // nothing of it is left to do
)

// lane is what jobs run in one at a time: a group, or a job without one.
type lane struct{ group, job string }

func (t *Task) lane() lane {
	if t.Job.Group == "" {
		return lane{job: t.Job.ID}
	}
	return lane{group: t.Job.Group}
}

// leases are the leases of one queue that this worker holds, and the handlers
// that run. It watches over the local end of the leases by itself, so that a hung
// heartbeat can not delay that.
type leases struct {
	onLost func(*Task) // called without the lock, once for a task

	mu sync.Mutex
	// handlers has the tasks whose handlers run, also those that lost their lease.
	handlers map[lane]*Task
	// held has the tasks whose leases are to be extended: running and settling.
	held []*Task
	// alarm fires at alarmAt, the earliest end of a running task's lease known
	// when it was set; a zero alarmAt means that it is not set.
	alarm   *time.Timer
	alarmAt time.Time
	closed  bool
}

// enter takes in a task whose handler is to be called. It reports false when
// another handler still runs in the same lane: that one has lost its lease, and
// the new task is taken in as one that will not be called.
func (l *leases) enter(t *Task) bool {
	key := t.lane()
	l.mu.Lock()
	old := l.handlers[key]
	if old == nil {
		l.handlers[key] = t
		t.stage = running
		l.watch(t.end)
	} else {
		t.stage = settling
	}
	l.hold(t)
	overtaken := old != nil && l.markLost(old)
	l.mu.Unlock()
	if overtaken {
		l.onLost(old)
	}
	return old == nil
}

// begin notes that the handler is called.
func (l *leases) begin(t *Task, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.started = now
}

// enterIdle takes in a task whose handler will not be called.
func (l *leases) enterIdle(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.stage = settling
	l.hold(t)
}

// leave notes that the handler of t has returned. It reports whether the lease is
// still held, and whether a person cancelled the job.
func (l *leases) leave(t *Task, now time.Time) (held, cancelled bool) {
	l.mu.Lock()
	delete(l.handlers, t.lane())
	overdue := !now.Before(t.end) && l.markLost(t)
	held, cancelled = t.stage == running, t.cancelled
	if held {
		t.stage = settling
	} else {
		t.stage = ended
	}
	l.mu.Unlock()
	if overdue {
		l.onLost(t)
	}
	return held, cancelled
}

// drop forgets a task that was settled or given up.
func (l *leases) drop(t *Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unhold(t)
	t.stage = ended
}

// lose notes that the store said that the lease is stale. For a task whose handler
// has returned it means nothing.
func (l *leases) lose(t *Task) {
	l.mu.Lock()
	done := l.markLost(t)
	l.mu.Unlock()
	if done {
		l.onLost(t)
	}
}

// extended notes a new end of the lease.
func (l *leases) extended(t *Task, end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end.After(t.end) {
		t.end = end
	}
}

// requestCancel notes that a person cancelled the job. It reports false when that
// was known or the handler has returned.
func (l *leases) requestCancel(t *Task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.stage != running || t.cancelled {
		return false
	}
	t.cancelled = true
	return true
}

// find gives the running task of a job, or nil.
func (l *leases) find(jobID string) *Task {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.held {
		if t.Job.ID == jobID && t.stage == running {
			return t
		}
	}
	return nil
}

// each calls f, which must not use the leases, for every held task.
func (l *leases) each(f func(*Task)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.held {
		f(t)
	}
}

// ring is the alarm: it finds the running tasks whose leases have ended and sets
// the next alarm.
func (l *leases) ring() {
	now := time.Now()
	var over []*Task
	l.mu.Lock()
	l.alarmAt = time.Time{}
	for i := len(l.held) - 1; i >= 0 && !l.closed; i-- { // from behind, as losing swaps in the last
		t := l.held[i]
		switch {
		case t.stage != running: // the settler knows the end of its tasks
		case now.Before(t.end):
			l.watch(t.end)
		default:
			l.markLost(t)
			over = append(over, t)
		}
	}
	l.mu.Unlock()
	for _, t := range over {
		l.onLost(t)
	}
}

// close ends the watch. What is still held is left to run out.
func (l *leases) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.alarm != nil {
		l.alarm.Stop()
	}
}

// The functions below are called with the lock.

func (l *leases) hold(t *Task) {
	t.place = len(l.held)
	l.held = append(l.held, t)
}

func (l *leases) unhold(t *Task) {
	last := len(l.held) - 1
	if t.place > last || l.held[t.place] != t {
		return
	}
	l.held[t.place] = l.held[last]
	l.held[t.place].place = t.place
	l.held[last] = nil
	l.held = l.held[:last]
}

// markLost reports whether t was running until now. The caller calls onLost.
func (l *leases) markLost(t *Task) bool {
	if t.stage != running {
		return false
	}
	t.stage = lost
	l.unhold(t)
	return true
}

// watch makes sure that the alarm fires at end or before.
func (l *leases) watch(end time.Time) {
	if l.closed || !l.alarmAt.IsZero() && !end.Before(l.alarmAt) {
		return
	}
	l.alarmAt = end
	if l.alarm == nil {
		l.alarm = time.AfterFunc(time.Until(end), l.ring)
	} else {
		l.alarm.Reset(time.Until(end))
	}
}

// onLost of a queue's leases: the handler's context ends.
func (q *queue) lost(t *Task) {
	t.cancel(core.ErrLeaseLost)
	q.w.count.leasesLost.Add(1)
	q.log.Warn("rota worker: lease lost while the handler runs",
		"job", t.Job.ID, "kind", t.Job.Kind, "group", t.Job.Group, "attempt", t.Job.Attempt)
	if f := q.w.cfg.Observer.LeaseLost; f != nil {
		q.tell(func() { f(t.Job) })
	}
}
