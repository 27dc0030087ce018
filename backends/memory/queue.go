package memory

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/rota-queue/rota/core"
)

// job is a stored job. The embedded core.Job has what readers see; its Lease is
// filled in only on copies.
type job struct {
	core.Job
	// place in the group's line; 0 as long as it has never joined one.
	place int64
	// lane the job stands in; nil while it stands aside or is finished.
	lane *lane
	// asideUntil is set while the job waits outside the line.
	asideUntil int64
	// score orders the job in the index of its state.
	score int64
	// expires is when a finished job may be purged.
	expires int64
	dedup   core.StateSet
}

func (j *job) runAt() int64 { return j.RunAt.UnixMicro() }

// entry is an element of an index that is ordered by score, then publish order.
type entry struct {
	score, seq int64
	job        *job
}

func entryLess(a, b entry) bool {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.seq, b.seq)) < 0
}

type index = btree.BTreeG[entry]

func newIndex() *index {
	return btree.NewBTreeGOptions(entryLess, btree.Options{NoLocks: true})
}

// turn is an element of a ready set.
type turn struct {
	due  int64
	lane *lane
}

func turnLess(a, b turn) bool {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.lane.key, b.lane.key)) < 0
}

type queue struct {
	b      *Backend
	name   string
	cfg    core.QueueConfig // as set
	eff    core.QueueConfig // with defaults
	paused bool

	jobs       map[string]*job
	groups     btree.Map[string, *lane] // grouped lanes, by group name
	ready      [core.MaxPriority + 1]*btree.BTreeG[turn]
	states     [core.StateCancelled + 1]*index
	aside      *index // jobs standing aside, by RunAt
	expiring   *index // finished jobs, by the time they may be purged
	unfinished [core.MaxPriority + 1]int64
	dedup      map[string]dedupKey
	stats      map[int64]*core.DayStats // by unix day
	events     []core.Event
	eventSeq   int64

	// idle: a claim came back short since the last hint; idleNext is when, as far
	// as it saw, the next thing falls due (0: nothing).
	idle     bool
	idleNext int64
}

// ensureQueue returns the queue, made if need be.
func (b *Backend) ensureQueue(name string) *queue {
	q := b.queues[name]
	if q == nil {
		q = &queue{
			b: b, name: name, jobs: map[string]*job{}, dedup: map[string]dedupKey{},
			aside: newIndex(), expiring: newIndex(), stats: map[int64]*core.DayStats{},
			idle: true, // claims may have found no queue
		}
		if kept := b.kept[name]; kept != nil {
			q.dedup = kept
			delete(b.kept, name)
		}
		q.eff = q.cfg.WithDefaults()
		for i := range q.ready {
			q.ready[i] = btree.NewBTreeGOptions(turnLess, btree.Options{NoLocks: true})
		}
		for i := range q.states {
			q.states[i] = newIndex()
		}
		b.queues[name] = q
	}
	return q
}

// setState moves the job to a state, keeping every index that hangs on it. score
// orders the job within the state.
func (q *queue) setState(j *job, s core.State, score int64) {
	q.unindex(j)
	j.State, j.score = s, score
	q.states[s].Set(entry{score, j.Seq, j})
	if !s.Finished() {
		q.unfinished[j.Priority]++
	}
}

func (q *queue) unindex(j *job) {
	if j.State == core.StateUnknown {
		return
	}
	q.states[j.State].Delete(entry{score: j.score, seq: j.Seq})
	if !j.State.Finished() {
		q.unfinished[j.Priority]--
	}
	if j.expires != 0 {
		q.expiring.Delete(entry{score: j.expires, seq: j.Seq})
		j.expires = 0
	}
	if j.asideUntil != 0 {
		q.aside.Delete(entry{score: j.asideUntil, seq: j.Seq})
		j.asideUntil = 0
	}
}

// finish ends a job that has left its line: it is kept for its retention, or
// dropped. It reports the state readers see.
func (q *queue) finish(j *job, s core.State, now int64) core.State {
	q.count(now, s)
	j.FinishedAt = timeOf(now)
	j.CancelRequested = false
	q.setState(j, s, now)
	if j.Result != nil {
		q.b.wake(core.Wake{Kind: core.WakeFinished, Queue: q.name, JobID: j.ID})
	}
	keep := q.eff.Retain(s, j.Retention, j.Result != nil)
	if keep <= 0 {
		q.drop(j)
		return core.StateGone
	}
	j.expires = addTime(now, keep)
	q.expiring.Set(entry{j.expires, j.Seq, j})
	return s
}

// drop removes a job that has left its line.
func (q *queue) drop(j *job) {
	q.unindex(j)
	q.leaveKey(j)
	j.State = core.StateUnknown
	delete(q.jobs, j.ID)
}

// addTime adds without overflow: Forever stays far away.
func addTime(now int64, d time.Duration) int64 {
	const far = int64(1) << 52
	return min(now+d.Microseconds(), far)
}

func (q *queue) count(now int64, s core.State) {
	day := q.day(now)
	switch s {
	case core.StateCompleted:
		day.Completed++
	case core.StateDead:
		day.Dead++
	case core.StateCancelled:
		day.Cancelled++
	}
}

// copyOf makes what a reader gets.
func (j *job) copyOf() *core.Job {
	c := j.Job
	c.Payload = bytes.Clone(j.Payload)
	c.Result = bytes.Clone(j.Result)
	c.Headers = maps.Clone(j.Headers)
	c.Failures = slices.Clone(j.Failures)
	if j.State == core.StateRunning {
		c.Lease = j.lane.leaseInfo()
	}
	return &c
}

// apply applies a patch.
func (j *job) apply(p core.Patch) {
	if p.Payload != nil {
		j.Payload = bytes.Clone(p.Payload)
	}
	if p.Result != nil {
		j.Result = bytes.Clone(p.Result)
	}
	if len(p.SetHeaders) > 0 {
		if j.Headers == nil {
			j.Headers = map[string]string{}
		}
		maps.Copy(j.Headers, p.SetHeaders)
	}
	for _, k := range p.DropHeaders {
		delete(j.Headers, k)
	}
}

// fail records a failed attempt.
func (j *job) fail(now int64, text, trace, worker string) {
	j.Failures = append(j.Failures, core.Failure{
		Attempt: j.Attempt, At: timeOf(now), Worker: worker,
		Error: core.CutError(text), Trace: core.CutError(trace),
	})
	if over := len(j.Failures) - core.MaxFailures; over > 0 {
		j.Failures = slices.Delete(j.Failures, 0, over)
	}
}

func (j *job) exhausted() bool {
	return j.MaxAttempts != core.Unlimited && j.Attempt >= j.MaxAttempts
}

// headStart in microseconds. Forever is 30 years: far before every other turn,
// and the new groups still in their order.
func (q *queue) headStart() int64 {
	const thirtyYears = 30 * 365 * 24 * time.Hour
	return min(q.eff.HeadStart, thirtyYears).Microseconds()
}
