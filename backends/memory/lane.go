package memory

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rota-queue/rota/core"
)

// lane is a group with jobs, or paused or held; or the lane of one job without a
// group.
type lane struct {
	key   string // orders lanes that are due at the same time
	group string // empty for a job without a group
	tier  int
	// line holds the jobs in order, the running one included. Taking the first
	// out is a reslice; the rare rest costs its length.
	line []*job
	// due is from when the lane is claimable; it is in the ready set while queued.
	due    int64
	queued bool

	// The lease; running is nil when there is none.
	running *job
	token   string
	owner   string
	until   int64
	fence   int64

	paused, held bool
	heldBy       string
}

func compareJobs(a, b *job) int {
	return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.Seq, b.Seq))
}

func (l *lane) insert(j *job) {
	j.lane = l
	if n := len(l.line); n == 0 || compareJobs(l.line[n-1], j) < 0 {
		l.line = append(l.line, j)
		return
	}
	i, _ := slices.BinarySearchFunc(l.line, j, compareJobs)
	l.line = slices.Insert(l.line, i, j)
}

func (l *lane) remove(j *job) {
	j.lane = nil
	if l.line[0] == j {
		l.line[0] = nil
		l.line = l.line[1:]
		return
	}
	i, found := slices.BinarySearchFunc(l.line, j, compareJobs)
	if !found {
		panic(fmt.Sprintf("memory: job %q is not in its line", j.ID)) // an index is broken: stop here
	}
	l.line = slices.Delete(l.line, i, i+1)
}

func (l *lane) blocked() bool { return l.paused || l.held }

func (l *lane) leaseInfo() *core.LeaseInfo {
	return &core.LeaseInfo{Owner: l.owner, Until: timeOf(l.until), Fence: l.fence}
}

// free ends the lease without saying what becomes of the job.
func (l *lane) free() {
	l.running, l.token, l.owner, l.until = nil, "", "", 0
}

// laneFor finds or makes the lane a job is about to join.
func (q *queue) laneFor(j *job) *lane {
	if j.Group == "" {
		return &lane{key: fmt.Sprintf("j%016d:%s", j.Seq, j.ID), tier: j.Priority}
	}
	return q.ensureGroup(j.Group)
}

func (q *queue) ensureGroup(name string) *lane {
	l, ok := q.groups.Get(name)
	if !ok {
		l = &lane{key: "g" + name, group: name}
		q.groups.Set(name, l)
	}
	return l
}

// join puts a job into its line at place and makes the lane due. since is the
// time of joining.
func (q *queue) join(j *job, place, since, now int64) {
	l := q.laneFor(j)
	j.place = place
	first := len(l.line) == 0
	if first {
		l.tier = j.Priority
	}
	q.reprioritise(j, l.tier)
	l.insert(j)
	if !first {
		q.headChanged(l, now)
		return
	}
	due := since
	if l.group != "" && j.ClaimedAt.IsZero() {
		due -= q.headStart()
	}
	if ahead := j.runAt(); ahead > now {
		due = ahead
	}
	q.setDue(l, due, now)
}

func (q *queue) reprioritise(j *job, tier int) {
	if j.Priority != tier && !j.State.Finished() && j.State != core.StateUnknown {
		q.unfinished[j.Priority]--
		q.unfinished[tier]++
	}
	j.Priority = tier
}

// setDue gives the lane its place among the turns, unless it is blocked, and
// hints at workers that could take it or now sleep too long.
func (q *queue) setDue(l *lane, due, now int64) {
	q.unqueue(l)
	if l.blocked() && l.running == nil {
		return
	}
	l.due, l.queued = due, true
	q.ready[l.tier].Set(turn{due, l})
	if l.running == nil {
		q.hint(due, now)
	}
}

func (q *queue) unqueue(l *lane) {
	if l.queued {
		q.ready[l.tier].Delete(turn{l.due, l})
		l.queued = false
	}
}

// hint wakes idle workers when something is due now or earlier than they think.
func (q *queue) hint(due, now int64) {
	if q.idle && (due <= now || q.idleNext == 0 || due < q.idleNext) {
		q.idle = false
		q.b.wake(core.Wake{Kind: core.WakeReady, Queue: q.name})
	}
}

// headChanged sets the due of a lane whose head may be another than before,
// other than by a settle. It changes nothing when the head is the same.
func (q *queue) headChanged(l *lane, now int64) {
	switch {
	case l.running != nil:
	case len(l.line) == 0:
		q.drained(l)
	case l.line[0].runAt() > now:
		q.setDue(l, l.line[0].runAt(), now)
	case l.queued && l.due <= now:
		// It keeps its turn.
	default:
		q.setDue(l, now, now)
	}
}

// served sets the due of a lane whose lease has ended.
func (q *queue) served(l *lane, now int64) {
	if len(l.line) == 0 {
		q.drained(l)
		return
	}
	q.setDue(l, max(now, l.line[0].runAt()), now)
}

// drained forgets a lane without jobs, or all of it but a person's act.
func (q *queue) drained(l *lane) {
	q.unqueue(l)
	l.line = nil
	l.tier = 0
	if l.group != "" && !l.blocked() {
		q.groups.Delete(l.group)
	}
}

// stepAside takes a job that waits for RunAt out of play until then.
func (q *queue) stepAside(j *job, now int64) {
	j.asideUntil = j.runAt()
	q.aside.Set(entry{j.asideUntil, j.Seq, j})
	q.hint(j.runAt(), now)
}

// joinDue lets the jobs join whose time has come.
func (q *queue) joinDue(now int64) {
	for {
		e, ok := q.aside.Min()
		if !ok || e.score > now {
			return
		}
		j := e.job
		place := j.place
		if place == 0 {
			place = e.score
		}
		q.setState(j, core.StatePending, place)
		q.join(j, place, e.score, now)
	}
}
