package backendtest

import (
	"errors"

	"github.com/rota-queue/rota/core"
)

// The looks of the tests: what a person sees.

// job reads a job that must exist.
func (f *fixture) job(id string) *core.Job {
	f.Helper()
	job, err := f.b.Job(f.ctx, f.queue, id)
	if err != nil {
		f.Fatalf("job %q: %v", id, err)
	}
	equal(f, "id of the job", job.ID, id)
	return job
}

// wantState fails the test unless the job is in this state; StateGone means that
// there must be no such job.
func (f *fixture) wantState(id string, want core.State) {
	f.Helper()
	if got := f.state(id); got != want {
		f.Fatalf("job %q is %s, want %s", id, got, want)
	}
}

func (f *fixture) state(id string) core.State {
	f.Helper()
	job, err := f.b.Job(f.ctx, f.queue, id)
	if errors.Is(err, core.ErrNotFound) {
		return core.StateGone
	}
	f.check(err)
	return job.State
}

// group describes a group that must exist.
func (f *fixture) group(name string) core.GroupInfo {
	f.Helper()
	info, err := f.b.Group(f.ctx, f.queue, name)
	if err != nil {
		f.Fatalf("group %q: %v", name, err)
	}
	return info
}

// wantNoGroup fails the test unless there is no such group.
func (f *fixture) wantNoGroup(name string) {
	f.Helper()
	info, err := f.b.Group(f.ctx, f.queue, name)
	if !errors.Is(err, core.ErrNotFound) {
		f.Fatalf("group %q is %+v (%v), want none", name, info, err)
	}
}

// info describes the queue, which must exist.
func (f *fixture) info() core.QueueInfo {
	f.Helper()
	info, err := f.b.QueueInfo(f.ctx, f.queue)
	f.check(err)
	return info
}

// list lists all jobs that a filter chooses, over as many pages as it takes.
func (f *fixture) list(filter core.JobFilter) []*core.Job {
	f.Helper()
	filter.Queue = f.queue
	jobs, err := listJobs(f.ctx, f.b, filter)
	f.check(err)
	return jobs
}

// ids lists the ids of all jobs that a filter chooses.
func (f *fixture) ids(filter core.JobFilter) []string {
	f.Helper()
	list := []string{}
	for _, job := range f.list(filter) {
		list = append(list, job.ID)
	}
	return list
}

// line lists the ids of a group's line, the head first.
func (f *fixture) line(group string) []string {
	f.Helper()
	return f.ids(core.JobFilter{Group: group})
}

// counted is what the daily counters say, over the midnight that may have
// passed during the test.
func (f *fixture) counted() core.DayStats {
	f.Helper()
	days, err := f.b.Stats(f.ctx, f.queue, 2)
	f.check(err)
	var sum core.DayStats
	for _, d := range days {
		sum.Completed += d.Completed
		sum.Failed += d.Failed
		sum.Dead += d.Dead
		sum.Cancelled += d.Cancelled
	}
	return sum
}

// refusing is unchanged for many calls, each of which is to be refused: the queue is
// looked at before the first and behind the last.
func (f *fixture) refusing(what string, do func()) {
	f.Helper()
	f.unchanged(what, func() {
		f.watched = true
		defer func() { f.watched = false }()
		do()
	})
}

// unchanged fails the test unless do leaves all of the queue as it was.
func (f *fixture) unchanged(what string, do func()) {
	f.Helper()
	if f.watched {
		do()
		return
	}
	before := f.dump()
	do()
	f.still(before, what)
}

// still fails the test unless the queue looks as before something was done.
func (f *fixture) still(before, what string) {
	f.Helper()
	if after := f.dump(); after != before {
		f.Fatalf("%s changed the queue from\n%s\nto\n%s", what, before, after)
	}
}

// dump is all that can be seen of the queue.
func (f *fixture) dump() string {
	f.Helper()
	d, err := readQueue(f.ctx, f.b, f.queue)
	f.check(err)
	return d.String()
}
