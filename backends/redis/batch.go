package rotaredis

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/rota-queue/rota/core"
)

// batch is the part of a publish that goes to one family.
type batch struct {
	call
	// plain tells that lua/publish_plain.lua takes it.
	plain bool
	names []string       // of keys, by their index in Lua minus one
	index map[string]int // of a key's name in Lua, from 1
	jobs  []int          // indexes in the request
	ids   []string
	made  []string // queues the publish made
	// target of the last job added.
	target target
}

// target is a queue and a topic by their index in KEYS.
type target struct{ queue, topic int }

func (b *Backend) split(req core.PublishRequest) ([]*batch, error) {
	var batches []*batch
	byFamily := map[string]*batch{}
	for i := range req.Jobs {
		family := core.Family(req.Jobs[i].Topic)
		if req.Jobs[i].Topic == "" {
			family = core.Family(req.Jobs[i].Queue)
		}
		t := byFamily[family]
		if t == nil {
			t = &batch{plain: !req.AllOrNothing, index: map[string]int{}}
			byFamily[family] = t
			batches = append(batches, t)
		}
		n, first := &req.Jobs[i], i
		if len(t.jobs) > 0 {
			first = t.jobs[0]
		}
		t.plain = t.plain && isPlain(n) && n.Queue == req.Jobs[first].Queue
		t.jobs = append(t.jobs, i)
	}
	for _, t := range batches {
		if err := t.layOut(b, req); err != nil {
			return nil, err
		}
	}
	return batches, nil
}

// isPlain tells jobs that lua/publish_plain.lua can store.
func isPlain(n *core.NewJob) bool {
	return n.Topic == "" && n.Delay == 0 && n.RunAt.IsZero() && n.Dedup.Key == ""
}

// layOut makes the call that stores the batch.
func (t *batch) layOut(b *Backend, req core.PublishRequest) error {
	t.retry, t.write = 1, true
	t.args = append(make([]any, 0, 12+4*len(t.jobs)), nonce(), "0")
	if t.plain {
		t.script = scriptPublishPlain
		t.key(b, req.Jobs[t.jobs[0]].Queue)
		t.args = append(t.args, len(t.jobs))
	} else {
		t.script, t.keys, t.names = scriptPublish, []string{b.familyKey(familyOf(&req.Jobs[t.jobs[0]]))}, []string{""}
		t.args = append(t.args, flag(req.AllOrNothing), len(t.jobs))
	}
	if t.plain {
		for _, i := range t.jobs {
			t.args = append(t.args, laneOf(t.keys[0], &req.Jobs[i]))
		}
	}
	for _, i := range t.jobs {
		n := &req.Jobs[i]
		id := n.ID
		if id == "" {
			made, err := uuid.NewV7()
			if err != nil {
				return fmt.Errorf("redis: publish: %w", err)
			}
			id = made.String()
		}
		t.ids = append(t.ids, id)
		if t.plain {
			long := needsLong(n)
			t.args = append(t.args, id, plainFlags(n, long), encodeRest(n, long))
		} else {
			t.add(b, n, id)
		}
	}
	return nil
}

func familyOf(n *core.NewJob) string {
	if n.Topic != "" {
		return core.Family(n.Topic)
	}
	return core.Family(n.Queue)
}

// key gives the index of a queue's or topic's prefix in KEYS, 0 for no name.
func (t *batch) key(b *Backend, name string) int {
	if name == "" {
		return 0
	}
	i, ok := t.index[name]
	if !ok {
		t.keys = append(t.keys, b.queueKey(name))
		t.names = append(t.names, name)
		i = len(t.keys)
		t.index[name] = i
	}
	return i
}

// laneOf is the lane of a job's group, or "".
func laneOf(queueKey string, n *core.NewJob) string {
	if n.Group == "" {
		return ""
	}
	return queueKey + "g" + n.Group
}

// plainFlags are a job's flags for lua/publish_plain.lua.
func plainFlags(n *core.NewJob, long bool) string {
	if n.ID == "" && !long && n.MaxAttempts == 0 && n.Priority == 0 {
		return "0000" // spares an allocation
	}
	return string([]byte{digit(n.ID != ""), digit(long), digit(n.MaxAttempts != 0), '0' + byte(n.Priority)})
}

// add appends a job as lua/publish.lua reads it.
func (t *batch) add(b *Backend, n *core.NewJob, id string) {
	timeKind, at := timing(n)
	target := target{t.key(b, n.Queue), t.key(b, n.Topic)}
	t.args = append(t.args, id, string([]byte{
		'0' + byte(n.Priority), digit(n.ID != ""), timeKind, digit(n.Dedup.Key != ""), digit(n.MaxAttempts != 0),
		digit(target != t.target), digit(n.Retention != 0), '0' + byte(n.Scheduling),
	}), n.Group, encodeRest(n, true)[1:]) // the tier is the script's
	if target != t.target {
		t.args = append(t.args, target.queue, target.topic)
		t.target = target
	}
	if timeKind != '0' {
		t.args = append(t.args, at)
	}
	if n.Dedup.Key != "" {
		t.args = append(t.args, n.Dedup.Key, int(n.Dedup.EffectiveWhile()), micros(n.Dedup.Window), int(n.Dedup.OnConflict))
	}
}

func digit(on bool) byte {
	if on {
		return '1'
	}
	return '0'
}

func timing(n *core.NewJob) (kind byte, at int64) {
	switch {
	case n.Delay > 0:
		return '1', n.Delay.Microseconds()
	case !n.RunAt.IsZero():
		return '2', n.RunAt.UnixMicro()
	}
	return '0', 0
}

// Kinds of results in the reply of lua/publish.lua.
const (
	resultStored = iota + 1
	resultExisting
	resultReplaced
	resultIDTaken
	resultDuplicate
	resultUnbound
	resultRefused
)

func (t *batch) decode(jobs []core.NewJob, results []core.PublishResult, reply any) error {
	parts := list(reply)
	if len(parts) != 3 {
		return badReply("publish", reply)
	}
	if t.plain {
		return t.decodePlain(results, parts)
	}
	for _, made := range list(parts[0]) {
		t.made = append(t.made, t.name(made))
	}
	first, rest := number(parts[1]), list(parts[2])
	if first == 0 && len(rest) != len(t.jobs) {
		return badReply("publish", reply)
	}
	for k, i := range t.jobs {
		r := &results[i]
		r.ID = t.ids[k]
		if first != 0 {
			r.Queues, r.Seq = []string{jobs[i].Queue}, first+int64(k)
			continue
		}
		t.decodeResult(&jobs[i], r, rest[k])
	}
	return nil
}

// decodePlain reads the reply of lua/publish_plain.lua.
func (t *batch) decodePlain(results []core.PublishResult, reply []any) error {
	queue := t.names[0]
	if number(reply[0]) == 1 {
		t.made = append(t.made, queue)
	}
	seq, taken := number(reply[1]), list(reply[2])
	queues := make([]string, len(t.jobs)) // one slice for all
	for k, i := range t.jobs {
		r := &results[i]
		queues[k] = queue
		r.ID, r.Queues = t.ids[k], queues[k:k+1:k+1]
		if len(taken) > 0 && number(taken[0]) == int64(k+1) {
			taken = taken[1:]
			r.Err = &core.DuplicateError{Queue: queue, ID: r.ID}
			continue
		}
		r.Seq = seq
		seq++
	}
	return nil
}

func (t *batch) decodeResult(n *core.NewJob, r *core.PublishResult, reply any) {
	if seq, ok := reply.(int64); ok {
		r.Queues, r.Seq = []string{n.Queue}, seq
		return
	}
	parts := append(list(reply), nil, nil) // never too short
	switch number(parts[0]) {
	case resultStored:
		for _, name := range list(parts[1]) {
			r.Queues = append(r.Queues, t.name(name))
		}
		r.Seq = number(parts[2])
	case resultExisting, resultReplaced:
		r.ID, r.Queues, r.Existing = text(parts[2]), []string{t.name(parts[1])}, true
		r.Replaced = number(parts[0]) == resultReplaced
	case resultIDTaken:
		r.Queues = []string{t.name(parts[1])}
		r.Err = &core.DuplicateError{Queue: t.name(parts[1]), ID: r.ID}
	case resultDuplicate:
		r.Queues = []string{t.name(parts[1])}
		r.Err = &core.DuplicateError{Queue: t.name(parts[1]), Key: n.Dedup.Key, ID: text(parts[2])}
	case resultUnbound:
		r.Err = fmt.Errorf("topic %q: %w", n.Topic, core.ErrNoBinding)
	default:
		r.Err = core.ErrNotPublished
	}
}

// name resolves a queue in a reply: an index in KEYS, or the name itself.
func (t *batch) name(v any) string {
	if i, ok := v.(int64); ok && i >= 1 && int(i) <= len(t.names) {
		return t.names[i-1]
	}
	return text(v)
}
