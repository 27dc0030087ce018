package rotapostgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// runner is what both a connection and a transaction can do.
type runner interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// maxBatchBytes bounds the payloads of one publish: the server takes a statement
// of up to a gigabyte, and needs several times its size.
const maxBatchBytes = 256 << 20

// errNoQueue: a queue of the batch has yet to be made.
var errNoQueue = errors.New("no such queue")

// Publish stores a batch; see core.Producer.
func (b *Backend) Publish(ctx context.Context, req core.PublishRequest) ([]core.PublishResult, error) {
	p, err := b.plan(req)
	if err != nil || len(req.Jobs) == 0 {
		return nil, err
	}
	var results []core.PublishResult
	call := b.do
	if !p.plain {
		call = b.act
	}
	err = call(ctx, "publish", func(conn *pgxpool.Conn) error {
		results, err = p.run(ctx, conn)
		if errors.Is(err, errNoQueue) {
			if _, err := conn.Exec(ctx, b.sql("SELECT rota.queues_for($1::text[])"), p.queues); err != nil {
				return err
			}
			p.made = true
			results, err = p.run(ctx, conn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	p.hint()
	return results, nil
}

// publication is a batch on its way.
type publication struct {
	b      *Backend
	req    core.PublishRequest
	ids    []string
	queues []string // the distinct names of queues that jobs name
	which  []int32  // index into queues, from 1; nil when there is one queue
	inTx   bool     // in a transaction of the caller
	plain  bool     // no topic, no dedup key, not all or nothing
	made   bool     // a queue was made
	idle   bool     // a worker has nothing to do
	xact   int64    // the transaction's id
	stored int
}

func (b *Backend) plan(req core.PublishRequest) (*publication, error) {
	if err := req.Validate(b.opts.Limits); err != nil {
		return nil, err
	}
	p := &publication{b: b, req: req, plain: !req.AllOrNothing || len(req.Jobs) == 1, ids: make([]string, len(req.Jobs))}
	size := 0
	for i := range req.Jobs {
		n := &req.Jobs[i]
		size += len(n.Payload)
		p.ids[i] = n.ID
		if n.ID == "" {
			p.ids[i] = uuid.Must(uuid.NewV7()).String()
		}
		p.plain = p.plain && n.Topic == "" && n.Dedup.Key == ""
		p.addQueue(i, n.Queue)
	}
	if size > maxBatchBytes {
		return nil, core.Invalid("batch", nil, fmt.Sprintf("with payloads of %d bytes has more than %d bytes: publish it in parts", size, maxBatchBytes))
	}
	return p, nil
}

func (p *publication) addQueue(i int, name string) {
	at := 0
	if name != "" {
		at = slices.Index(p.queues, name)
		if at < 0 {
			at = len(p.queues)
			p.queues = append(p.queues, name)
		}
	}
	if at > 0 && p.which == nil {
		p.which = make([]int32, len(p.req.Jobs))
		for k := range i {
			p.which[k] = 1
		}
	}
	if p.which != nil {
		p.which[i] = int32(at) + 1
	}
}

// run stores the batch on a connection or in a transaction.
func (p *publication) run(ctx context.Context, on runner) ([]core.PublishResult, error) {
	if p.plain {
		return p.runPlain(ctx, on)
	}
	return p.runRules(ctx, on)
}

// runPlain stores jobs of which only the ids can be taken.
func (p *publication) runPlain(ctx context.Context, on runner) ([]core.PublishResult, error) {
	c := p.columns()
	first := p.firsts()
	var out []int64
	err := on.QueryRow(ctx, p.b.sql(`SELECT rota.publish($1::text[], $2::int4[], $3::text[], $4::bytea[], $5::text[], $6::bool[], $7::text[], $8::text[],
		$9::int2[], $10::int8[], $11::int8[], $12::int4[], $13::int8[], $14::int8[], $15::int8[], $16::int2[], $17::int2[], $18::int2[], $19::bool)`),
		p.queues, p.which, p.ids, c.payload, c.group, first, c.kind, c.headers, c.priority, c.delay, c.runAt, c.maxAttempts, c.timeout, c.deadline,
		c.retention, c.onFailure, c.onExhausted, c.scheduling, !p.inTx).Scan(&out)
	if err != nil {
		return nil, err
	}
	if out[2] == 2 {
		return nil, errNoQueue
	}
	p.idle, p.xact = out[2] != 0, out[3]
	p.stored = len(p.ids) - (len(out) - 4)
	results := make([]core.PublishResult, len(p.ids))
	for i := range results {
		results[i] = core.PublishResult{ID: p.ids[i], Queues: p.queueOf(i), Seq: out[1] + int64(i)}
	}
	for _, n := range out[4:] {
		i := n - 1
		results[i].Seq = 0
		results[i].Err = &core.DuplicateError{Queue: p.req.Jobs[i].Queue, ID: p.ids[i]}
	}
	return results, nil
}

// queueOf gives the queue of a job as a list that cannot be appended to.
func (p *publication) queueOf(i int) []string {
	at := 0
	if p.which != nil {
		at = int(p.which[i]) - 1
	}
	return p.queues[at : at+1 : at+1]
}

// firsts marks the first job of each group, and those with a delay. It is nil when
// no job has a group.
func (p *publication) firsts() []bool {
	type lane struct {
		queue int32
		group string
	}
	var first []bool
	var seen map[lane]struct{}
	for i := range p.req.Jobs {
		n := &p.req.Jobs[i]
		if n.Group == "" {
			continue
		}
		if first == nil {
			first = make([]bool, len(p.req.Jobs))
			seen = make(map[lane]struct{}, len(p.req.Jobs))
		}
		l := lane{group: n.Group}
		if p.which != nil {
			l.queue = p.which[i]
		}
		if n.Delay > 0 || !n.RunAt.IsZero() {
			first[i] = true
			continue
		}
		if _, ok := seen[l]; !ok {
			first[i] = true
			seen[l] = struct{}{}
		}
	}
	return first
}

// runRules stores jobs one by one on the server, in one statement.
func (p *publication) runRules(ctx context.Context, on runner) ([]core.PublishResult, error) {
	c := p.columns()
	n := len(p.req.Jobs)
	queue, topic, key := make([]string, n), make([]string, n), make([]string, n)
	while, conflict, window := make([]int16, n), make([]int16, n), make([]int64, n)
	for i := range p.req.Jobs {
		j := &p.req.Jobs[i]
		queue[i], topic[i], key[i] = j.Queue, j.Topic, j.Dedup.Key
		while[i], conflict[i], window[i] = int16(j.Dedup.EffectiveWhile()), int16(j.Dedup.OnConflict), j.Dedup.Window.Microseconds()
	}
	rows, err := on.Query(ctx, p.b.sql(`SELECT * FROM rota.publish_rules($23::bool, $1::bool, $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[], $7::text[], $8::text[],
		$9::int2[], $10::int8[], $11::int8[], $12::int4[], $13::int8[], $14::int8[], $15::int8[], $16::int2[], $17::int2[], $18::int2[],
		$19::text[], $20::int2[], $21::int8[], $22::int2[])`),
		p.req.AllOrNothing, queue, topic, p.ids, c.payload, c.group, c.kind, c.headers, c.priority, c.delay, c.runAt, c.maxAttempts, c.timeout, c.deadline,
		c.retention, c.onFailure, c.onExhausted, c.scheduling, key, while, window, conflict, !p.inTx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	results := make([]core.PublishResult, n)
	p.stored = 0
	var found []string
	for rows.Next() {
		var ord, verdict int
		var id, name *string
		var seq *int64
		var queues []string
		if err := rows.Scan(&ord, &verdict, &id, &name, &seq, &queues); err != nil {
			return nil, err
		}
		if ord == 0 {
			p.idle, p.xact = verdict > 0, *seq
			continue
		}
		results[ord-1] = p.result(ord-1, verdict, text(id), text(name), seq, queues)
		for _, q := range results[ord-1].Queues {
			if verdict == verdictStored || verdict == verdictReplaced {
				p.stored++
				if !slices.Contains(found, q) {
					found = append(found, q)
				}
			}
		}
	}
	p.queues = found
	return results, rows.Err()
}

// missing finds the queues of the batch that are yet to be made: those that jobs
// name, and those they fall back to for want of a binding.
func (p *publication) missing(ctx context.Context, on runner) (bool, error) {
	var queues, topics []string
	for i := range p.req.Jobs {
		j := &p.req.Jobs[i]
		if _, ok := p.b.known.Load(j.Queue); ok || j.Queue == "" {
			continue
		}
		if len(queues) == 0 || queues[len(queues)-1] != j.Queue || topics[len(topics)-1] != j.Topic {
			queues, topics = append(queues, j.Queue), append(topics, j.Topic)
		}
	}
	p.queues = nil
	if len(queues) == 0 {
		return false, nil
	}
	rows, err := on.Query(ctx, p.b.sql(`SELECT DISTINCT x.queue, q.id IS NOT NULL FROM unnest($1::text[], $2::text[]) AS x(queue, topic)
		LEFT JOIN rota.queue q ON q.name = x.queue
		WHERE q.id IS NOT NULL OR x.topic = '' OR NOT EXISTS (SELECT 1 FROM rota.binding b WHERE b.topic = x.topic)`), queues, topics)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var there bool
		if err := rows.Scan(&name, &there); err != nil {
			return false, err
		}
		if there {
			p.b.known.Store(name, true)
		} else {
			p.queues = append(p.queues, name)
		}
	}
	return len(p.queues) > 0, rows.Err()
}

// missingPlain tells whether a queue of a plain batch is yet to be made.
func (p *publication) missingPlain(ctx context.Context, on runner) (bool, error) {
	for _, q := range p.queues {
		if _, ok := p.b.known.Load(q); !ok {
			var n int
			err := on.QueryRow(ctx, p.b.sql("SELECT count(*) FROM rota.queue q WHERE q.name = ANY ($1::text[])"), p.queues).Scan(&n)
			return n < len(p.queues), err
		}
	}
	return false, nil
}

// What rota.publish_rules says of a job.
const (
	verdictStored = iota
	verdictIDTaken
	verdictKeyTaken
	verdictExisting
	verdictReplaced
	verdictNoBinding
	verdictNotPublished
)

func (p *publication) result(i, verdict int, id, queue string, seq *int64, queues []string) core.PublishResult {
	j := &p.req.Jobs[i]
	res := core.PublishResult{ID: p.ids[i], Queues: queues}
	switch verdict {
	case verdictStored:
		res.Seq = *seq
	case verdictIDTaken:
		res.Err = &core.DuplicateError{Queue: queue, ID: id}
	case verdictKeyTaken:
		res.Err = &core.DuplicateError{Queue: queue, Key: j.Dedup.Key, ID: id}
	case verdictExisting, verdictReplaced:
		res.ID, res.Existing, res.Replaced, res.Queues = id, true, verdict == verdictReplaced, []string{queue}
	case verdictNoBinding:
		res.Err = fmt.Errorf("topic %q: %w", j.Topic, core.ErrNoBinding)
	default:
		res.Err = core.ErrNotPublished
	}
	if p.req.AllOrNothing && res.Err != nil {
		res.ID, res.Queues = j.ID, nil
	}
	if verdict == verdictIDTaken || verdict == verdictKeyTaken {
		res.Queues = []string{queue} // that refused it
	}
	return res
}

// hint wakes workers once the batch has been committed.
func (p *publication) hint() {
	if p.stored == 0 {
		return
	}
	for _, q := range p.queues {
		_, known := p.b.known.Load(q)
		if p.made || !known && !p.plain {
			p.b.known.Store(q, true)
			p.b.hints.made(q)
		} else {
			p.b.hints.ready(q, p.idle)
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// jsonText writes a map or list as JSON.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and lists of strings always can be
	}
	return string(data)
}
