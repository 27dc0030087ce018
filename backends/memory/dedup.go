package memory

import (
	"bytes"
	"fmt"
	"maps"

	"github.com/rota-queue/rota/core"
)

// dedupKey is a taken key: by which job, in which of its states, until when. An
// id may come back with another job, so the Seq counts.
type dedupKey struct {
	id    string
	seq   int64
	while core.StateSet
	until int64 // 0: no bound
}

// verdict is what stands against a publish.
type verdict struct {
	stop   bool
	err    error
	holder string // the job that has the key
	found  *job   // it, if it is still stored
}

// judge decides whether a job may be stored.
func (q *queue) judge(n *core.NewJob, id string, now int64) verdict {
	if q.jobs[id] != nil {
		return verdict{stop: true, err: &core.DuplicateError{Queue: q.name, ID: id}, holder: id}
	}
	key, taken := q.takenKey(n.Dedup.Key, now)
	if !taken {
		return verdict{}
	}
	v := verdict{stop: true, holder: key.id, found: q.holder(key)}
	rejected := &core.DuplicateError{Queue: q.name, Key: n.Dedup.Key, ID: key.id}
	switch n.Dedup.OnConflict {
	case core.ReturnExisting:
		return v
	case core.AllowAfterFailure:
		if v.found != nil && core.States(core.StateRetrying, core.StateDead, core.StateCancelled).Has(v.found.State) {
			return verdict{}
		}
	case core.ReplacePending:
		if v.found != nil && core.Unstarted.Has(v.found.State) {
			return v
		}
	}
	v.err = rejected
	return v
}

// takenKey finds the holder of a key. Whether the key is taken is judged by the
// holder's state at this moment.
func (q *queue) takenKey(key string, now int64) (dedupKey, bool) {
	k, ok := q.dedup[key]
	if !ok {
		return k, false
	}
	if k.until != 0 && k.until <= now {
		delete(q.dedup, key)
		return k, false
	}
	state := core.StateGone
	if j := q.holder(k); j != nil {
		state = j.State
	}
	return k, k.while.Has(state)
}

// holder gives the job that took the key, or nil when it is gone.
func (q *queue) holder(k dedupKey) *job {
	if j := q.jobs[k.id]; j != nil && k.of(j) {
		return j
	}
	return nil
}

func (k dedupKey) of(j *job) bool { return k.id == j.ID && k.seq == j.Seq }

// refuse answers a publish that the verdict stops, and does a replacement.
func (q *queue) refuse(n *core.NewJob, v verdict, res core.PublishResult, now int64) core.PublishResult {
	res.Err, res.Queues = v.err, []string{q.name}
	if v.err != nil {
		return res
	}
	res.ID, res.Existing = v.holder, true
	if n.Dedup.OnConflict == core.ReplacePending {
		q.replace(v.found, n, now)
		res.Replaced = true
	}
	return res
}

// replace gives an unstarted job new contents at its old place.
func (q *queue) replace(j *job, n *core.NewJob, now int64) {
	j.Kind, j.Timeout, j.Deadline = n.Kind, n.Timeout, n.Deadline
	j.Payload, j.Headers = bytes.Clone(n.Payload), maps.Clone(n.Headers)
	outOfLine := j.asideUntil != 0 || j.State == core.StateScheduled && j.Group == ""
	if !outOfLine {
		return
	}
	if l := j.lane; l != nil { // a lone scheduled job sits in the ready set
		q.unqueue(l)
		l.remove(j)
	}
	q.unindex(j)
	j.State = core.StateUnknown
	runAt := now + n.Delay.Microseconds()
	if !n.RunAt.IsZero() {
		runAt = max(now, n.RunAt.UnixMicro())
	}
	j.RunAt = timeOf(runAt)
	q.enter(j, now)
}

// takeKey gives the key to a new job.
func (q *queue) takeKey(n *core.NewJob, j *job, now int64) {
	if n.Dedup.Key == "" {
		return
	}
	k := dedupKey{id: j.ID, seq: j.Seq, while: n.Dedup.EffectiveWhile()}
	if n.Dedup.Window > 0 {
		k.until = now + n.Dedup.Window.Microseconds()
	}
	j.DedupKey, j.dedup = n.Dedup.Key, k.while
	q.dedup[j.DedupKey] = k
}

// leaveKey frees the key of a job that is dropped, unless it outlasts the job.
func (q *queue) leaveKey(j *job) {
	k, ok := q.dedup[j.DedupKey]
	if ok && k.of(j) && !k.while.Has(core.StateGone) {
		delete(q.dedup, j.DedupKey)
	}
}

// deletedQueue stands for a queue that does not exist, with the keys that have
// outlasted it.
func (b *Backend) deletedQueue(name string) *queue { return &queue{name: name, dedup: b.kept[name]} }

// keptKeys are the keys that outlast the queue.
func (q *queue) keptKeys(now int64) map[string]dedupKey {
	kept := map[string]dedupKey{}
	for name, k := range q.dedup {
		if k.while.Has(core.StateGone) && k.until > now {
			kept[name] = k
		}
	}
	return kept
}

// retake gives a job that a person moves back its key again. It fails when
// another job has it.
func (q *queue) retake(j *job, s core.State, now int64) error {
	if j.DedupKey == "" {
		return nil
	}
	k, taken := q.takenKey(j.DedupKey, now)
	switch {
	case taken && !k.of(j):
		return &core.DuplicateError{Queue: q.name, Key: j.DedupKey, ID: k.id}
	case !k.of(j) && j.dedup.Has(s):
		q.dedup[j.DedupKey] = dedupKey{id: j.ID, seq: j.Seq, while: j.dedup}
	}
	return nil
}

// refuseAll fills results and reports true when any job of an all-or-nothing
// batch would be refused, each judged as if those before it were stored.
func (b *Backend) refuseAll(jobs []core.NewJob, results []core.PublishResult, now int64) bool {
	before := earlier{ids: map[inQueue]bool{}, keys: map[inQueue]dedupKey{}}
	refused := false
	for i := range jobs {
		n := &jobs[i]
		results[i] = core.PublishResult{ID: n.ID, Err: core.ErrNotPublished}
		queues := b.targets(n)
		if len(queues) == 0 {
			results[i].Err, refused = fmt.Errorf("topic %q: %w", n.Topic, core.ErrNoBinding), true
		}
		stored := true
		for _, name := range queues {
			if v := b.judgeBehind(before, name, n, now); v.stop {
				stored = false
				if v.err != nil {
					results[i].Err, results[i].Queues, refused = v.err, []string{name}, true
				}
				break
			}
		}
		if stored {
			before.add(queues, n, now)
		}
	}
	return refused
}

type inQueue struct{ queue, name string }

// earlier is what the jobs before in a batch would have taken.
type earlier struct {
	ids  map[inQueue]bool
	keys map[inQueue]dedupKey // with the one state the holder would be in, if that takes it
}

func (e earlier) add(queues []string, n *core.NewJob, now int64) {
	for _, name := range queues {
		if n.ID != "" {
			e.ids[inQueue{name, n.ID}] = true
		}
		if n.Dedup.Key != "" {
			e.keys[inQueue{name, n.Dedup.Key}] = dedupKey{id: n.ID, while: n.Dedup.EffectiveWhile() & core.States(firstState(n, now))}
		}
	}
}

// judgeBehind judges a job as if those before it in its batch were stored.
func (b *Backend) judgeBehind(before earlier, name string, n *core.NewJob, now int64) verdict {
	if n.ID != "" && before.ids[inQueue{name, n.ID}] {
		return verdict{stop: true, err: &core.DuplicateError{Queue: name, ID: n.ID}}
	}
	q := b.queues[name]
	if q == nil {
		q = b.deletedQueue(name)
	}
	v := q.judge(n, n.ID, now)
	if q.jobs[n.ID] != nil {
		return v
	}
	key, ok := before.keys[inQueue{name, n.Dedup.Key}]
	switch {
	case !ok:
		return v
	case key.while == 0:
		return verdict{}
	case n.Dedup.OnConflict == core.Reject || n.Dedup.OnConflict == core.AllowAfterFailure:
		return verdict{stop: true, err: &core.DuplicateError{Queue: name, Key: n.Dedup.Key, ID: key.id}}
	}
	return verdict{stop: true}
}

// firstState is the state a job is stored in.
func firstState(n *core.NewJob, now int64) core.State {
	if n.Delay > 0 || !n.RunAt.IsZero() && n.RunAt.UnixMicro() > now {
		return core.StateScheduled
	}
	return core.StatePending
}
