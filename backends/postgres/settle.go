package rotapostgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// Settle ends leases; see core.Leaser.
func (b *Backend) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	s, err := b.planSettle(queue, outcomes)
	if err != nil || len(outcomes) == 0 {
		return nil, err
	}
	var results []core.SettleResult
	err = b.do(ctx, "settle", func(conn *pgxpool.Conn) error {
		results, err = s.run(ctx, conn, false)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.hint()
	if len(s.busy) == 0 {
		return results, nil
	}
	// A transaction of a program settles some of these leases too. What became of
	// them is known when it ends; the others do not wait for that.
	rest := make([]core.Outcome, len(s.busy))
	for k, i := range s.busy {
		rest[k] = outcomes[i]
	}
	late, err := b.planSettle(queue, rest)
	if err != nil {
		return nil, err
	}
	var answers []core.SettleResult
	err = b.do(ctx, "settle", func(conn *pgxpool.Conn) error {
		answers, err = late.run(ctx, conn, true)
		return err
	})
	if err != nil {
		return nil, err
	}
	late.hint()
	for k, i := range s.busy {
		results[i] = answers[k]
	}
	return results, nil
}

// refColumns are leases as arrays that run in parallel.
type refColumns struct {
	group, id   []string
	fence, salt []int64
	tid         []pgtype.TID // where the lane was as it was claimed: a hint
}

func refsOf(n int) refColumns {
	return refColumns{group: make([]string, n), id: make([]string, n), fence: make([]int64, n), salt: make([]int64, n), tid: make([]pgtype.TID, n)}
}

// put fills in a lease. What can be none, because no lease has such a text, gets a
// fence that no lease has.
func (c *refColumns) put(i int, ref core.LeaseRef) {
	if !storable(ref.Group) || !storable(ref.JobID) {
		c.fence[i] = -1
		return
	}
	c.group[i], c.id[i] = ref.Group, ref.JobID
	c.fence[i], c.salt[i], c.tid[i] = parseToken(ref.Token)
}

// storable tells whether a text can be in the database at all.
func storable(s string) bool {
	return strings.IndexByte(s, 0) < 0 && strings.ToValidUTF8(s, "") == s
}

// settlement is a batch of outcomes on its way.
type settlement struct {
	b        *Backend
	queue    string
	outcomes []core.Outcome
	refs     refColumns

	action           []int16
	delay            []int64
	errText, trace   []string
	payload, result  [][]byte
	setHdrs, dropHdr []*string

	idle     bool
	xact     int64
	settled  int
	finished []string // ids of jobs that finished and carry a result
	busy     []int    // outcomes of leases that another transaction had locked
}

func (b *Backend) planSettle(queue string, outcomes []core.Outcome) (*settlement, error) {
	if err := core.ValidateOutcomes(queue, outcomes, b.opts.Limits); err != nil {
		return nil, err
	}
	n := len(outcomes)
	s := &settlement{b: b, queue: queue, outcomes: outcomes, refs: refsOf(n)}
	type lease struct {
		group, id   string
		fence, salt int64
	}
	var seen map[lease]bool
	if n > 1 {
		seen = make(map[lease]bool, n)
	}
	for i := range outcomes {
		o := &outcomes[i]
		s.refs.put(i, o.Lease)
		named := lease{s.refs.group[i], s.refs.id[i], s.refs.fence[i], s.refs.salt[i]}
		if seen[named] {
			s.refs.fence[i] = -1 // the first outcome of a lease ends it
			continue
		}
		if seen != nil {
			seen[named] = true
		}
		if o.Action != core.Complete {
			if s.action == nil {
				s.action = make([]int16, n)
				for k := range s.action {
					s.action[k] = int16(core.Complete)
				}
			}
			s.action[i] = int16(o.Action)
		}
		if d := o.Delay.Microseconds(); d != 0 {
			set(&s.delay, n, i, d)
		}
		if o.Error != "" {
			set(&s.errText, n, i, cleanText(o.Error))
		}
		if o.Trace != "" {
			set(&s.trace, n, i, cleanText(o.Trace))
		}
		s.patch(i, n, o.Patch)
	}
	return s, nil
}

func (s *settlement) patch(i, n int, p core.Patch) {
	if p.Payload != nil {
		set(&s.payload, n, i, p.Payload)
	}
	if p.Result != nil {
		set(&s.result, n, i, p.Result)
	}
	if len(p.SetHeaders) > 0 {
		h := jsonText(p.SetHeaders)
		set(&s.setHdrs, n, i, &h)
	}
	if len(p.DropHeaders) > 0 {
		h := jsonText(cleanAll(p.DropHeaders))
		set(&s.dropHdr, n, i, &h)
	}
	if s.action == nil && (p.Payload != nil || p.Result != nil || len(p.SetHeaders) > 0 || len(p.DropHeaders) > 0) {
		s.action = make([]int16, n)
		for k := range s.action {
			s.action[k] = int16(core.Complete)
		}
	}
}

// cleanText makes an error's text storable: what no text column takes is replaced.
func cleanText(s string) string {
	s = strings.ToValidUTF8(core.CutError(s), "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// cleanAll leaves out names that no stored header can have.
func cleanAll(list []string) []string {
	kept := make([]string, 0, len(list))
	for _, s := range list {
		if storable(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// run settles on a connection or in a transaction. Unless it is to wait it leaves
// alone the leases that another transaction has locked.
func (s *settlement) run(ctx context.Context, on runner, wait bool) ([]core.SettleResult, error) {
	var out []int64
	err := on.QueryRow(ctx, s.b.sql(`SELECT rota.settle($15::bool, $1::text, $2::text[], $3::text[], $4::int8[], $5::int8[], $6::tid[], $7::int2[], $8::int8[], $9::text[], $10::text[],
		$11::bytea[], $12::text[], $13::text[], $14::bytea[])`),
		s.queue, s.refs.group, s.refs.id, s.refs.fence, s.refs.salt, s.refs.tid, s.action, s.delay, s.errText, s.trace, s.payload, s.setHdrs, s.dropHdr, s.result, wait).Scan(&out)
	if err != nil {
		return nil, err
	}
	results := make([]core.SettleResult, len(s.outcomes))
	s.settled, s.finished, s.busy = 0, nil, nil
	s.idle, s.xact = out[len(results)] != 0, out[len(results)+1]
	for i := range results {
		code := out[i]
		if code < 0 {
			s.busy = append(s.busy, i)
			continue
		}
		if code == 0 {
			results[i].Err = errLeaseLost(s.outcomes[i].Lease)
			continue
		}
		s.settled++
		if code >= 16 {
			s.finished = append(s.finished, s.outcomes[i].Lease.JobID)
			code -= 16
		}
		results[i].State = core.State(code)
	}
	return results, nil
}

// hint wakes workers and waiters once the batch has been committed.
func (s *settlement) hint() {
	if s.settled > 0 {
		s.b.hints.ready(s.queue, s.idle)
	}
	for _, id := range s.finished {
		s.b.hints.finished(s.queue, id)
	}
}

// Extend prolongs leases; see core.Leaser.
func (b *Backend) Extend(ctx context.Context, queue string, leases []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	if err := core.ValidateExtend(queue, leases, lease); err != nil {
		return nil, err
	}
	if len(leases) == 0 {
		return nil, nil
	}
	results := make([]core.Extension, len(leases))
	todo := make([]int, len(leases))
	for i := range todo {
		todo[i] = i
	}
	// A lease whose group another transaction has locked is tried again a few times:
	// most are short. That of a program which is settling the lease may last, and
	// then the lease keeps the end it has.
	for try := 1; len(todo) > 0; try++ {
		refs := refsOf(len(todo))
		for k, i := range todo {
			refs.put(k, leases[i])
		}
		out, err := one[[]int64](ctx, b, "extend", `SELECT rota.extend($1::text, $2::text[], $3::text[], $4::int8[], $5::int8[], $6::tid[], $7::int8)`,
			queue, refs.group, refs.id, refs.fence, refs.salt, refs.tid, lease.Microseconds())
		if err != nil {
			return nil, err
		}
		for k, i := range todo {
			if end := out[k]; end == 0 {
				results[i].Err = errLeaseLost(leases[i])
			} else {
				results[i] = core.Extension{Until: timeOf(max(end, -end)), CancelRequested: end < 0}
			}
		}
		var busy []int
		for _, n := range out[len(todo):] {
			busy = append(busy, todo[n-1])
		}
		if todo = busy; len(todo) > 0 && (try == extendTries || !b.pause(ctx, try+2)) {
			break
		}
	}
	return results, nil
}

// extendTries is how often Extend tries to lock a group.
const extendTries = 4

// Save changes a running job; see core.Leaser.
func (b *Backend) Save(ctx context.Context, lease core.LeaseRef, patch core.Patch) error {
	if err := patch.Validate(b.opts.Limits); err != nil {
		return err
	}
	if err := core.CheckQueue(lease.Queue); err != nil {
		return err
	}
	refs := refsOf(1)
	refs.put(0, lease)
	s := settlement{}
	s.patch(0, 1, patch)
	kept, err := one[bool](ctx, b, "save", `SELECT rota.save($1::text, $2::text, $3::text, $4::int8, $5::int8, $6::tid, $7::bytea, $8::text, $9::text, $10::bytea)`,
		lease.Queue, refs.group[0], refs.id[0], refs.fence[0], refs.salt[0], refs.tid[0], only(s.payload), first(s.setHdrs), first(s.dropHdr), only(s.result))
	if err != nil {
		return err
	}
	if !kept {
		return errLeaseLost(lease)
	}
	return nil
}

func only(list [][]byte) []byte {
	if list == nil {
		return nil
	}
	return list[0]
}

func first(list []*string) *string {
	if list == nil {
		return nil
	}
	return list[0]
}
