package memory

import (
	"bytes"
	"maps"

	"github.com/rota-queue/rota/core"
)

// dedupKey is a taken key: by which job, in which of its states, until when.
type dedupKey struct {
	id    string
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
	v := verdict{stop: true, holder: key.id, found: q.jobs[key.id]}
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

func (q *queue) takenKey(key string, now int64) (dedupKey, bool) {
	if key == "" {
		return dedupKey{}, false
	}
	k, ok := q.dedup[key]
	if ok && k.until != 0 && k.until <= now {
		delete(q.dedup, key)
		return dedupKey{}, false
	}
	return k, ok
}

// refuse answers a publish that the verdict stops, and does a replacement.
func (q *queue) refuse(n *core.NewJob, v verdict, res core.PublishResult, now int64) core.PublishResult {
	res.Err = v.err
	if v.err != nil {
		return res
	}
	res.ID, res.Existing, res.Queues = v.holder, true, []string{q.name}
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
	k := dedupKey{id: j.ID, while: n.Dedup.EffectiveWhile()}
	if n.Dedup.Window > 0 {
		k.until = now + n.Dedup.Window.Microseconds()
	}
	j.DedupKey, j.dedup = n.Dedup.Key, k.while
	q.dedup[j.DedupKey] = k
}

// dedupFollows frees the job's key when its new state is none the key is held in.
func (q *queue) dedupFollows(j *job, s core.State) {
	if j.DedupKey == "" || j.dedup.Has(s) {
		return
	}
	if q.dedup[j.DedupKey].id == j.ID {
		delete(q.dedup, j.DedupKey)
	}
}

// retake gives a job that a person moves back its key again. It fails when
// another job has it.
func (q *queue) retake(j *job, s core.State, now int64) error {
	if j.DedupKey == "" {
		return nil
	}
	k, taken := q.takenKey(j.DedupKey, now)
	switch {
	case taken && k.id != j.ID:
		return &core.DuplicateError{Queue: q.name, Key: j.DedupKey, ID: k.id}
	case !taken && j.dedup.Has(s):
		q.dedup[j.DedupKey] = dedupKey{id: j.ID, while: j.dedup}
	}
	return nil
}

// refuseAll fills results and reports true when any job of an all-or-nothing
// batch would be refused. Jobs of the batch are judged against each other too.
func (b *Backend) refuseAll(jobs []core.NewJob, results []core.PublishResult, now int64) bool {
	type name struct{ queue, value string }
	ids, keys := map[name]string{}, map[name]string{}
	refused := false
	for i := range jobs {
		n := &jobs[i]
		results[i] = core.PublishResult{ID: n.ID, Err: core.ErrNotPublished}
		queues := b.targets(n)
		if len(queues) == 0 {
			results[i].Err, refused = core.ErrNoBinding, true
		}
		for _, qn := range queues {
			if n.ID != "" {
				if _, ok := ids[name{qn, n.ID}]; ok {
					results[i].Err, refused = &core.DuplicateError{Queue: qn, ID: n.ID}, true
				}
				ids[name{qn, n.ID}] = n.ID
			}
			if n.Dedup.Key != "" {
				if first, ok := keys[name{qn, n.Dedup.Key}]; ok && n.Dedup.OnConflict == core.Reject {
					results[i].Err, refused = &core.DuplicateError{Queue: qn, Key: n.Dedup.Key, ID: first}, true
				}
				keys[name{qn, n.Dedup.Key}] = n.ID
			}
			if q := b.queues[qn]; q != nil {
				if v := q.judge(n, n.ID, now); v.stop && v.err != nil {
					results[i].Err, refused = v.err, true
				}
			}
		}
	}
	return refused
}
