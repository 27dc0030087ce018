package rotapostgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// held is a kind of call that a program makes in a transaction which it then keeps
// open. Group g is what it is about.
type held struct {
	name     string
	prepare  func(q queue) []core.Lease // gives leases of g
	hold     func(q queue, tx pgx.Tx, leases []core.Lease)
	settles  bool     // hold settles the leases
	closed   bool     // nothing of g can be claimed before the transaction ends
	replaces bool     // of job a
	after    []string // what is claimed from g, while the transaction is open or when it has committed
	undone   []string // the same if it is rolled back
}

// keyed is a publish of one job with the key k.
func keyed(q queue, n core.NewJob, how core.Conflict) core.PublishRequest {
	n.Queue, n.Dedup = q.name, core.Dedup{Key: "k", OnConflict: how}
	return core.PublishRequest{Jobs: []core.NewJob{n}}
}

// has publishes jobs of g, then job a with the key k, and claims the first n.
func has(a core.NewJob, claims int, ids ...string) func(q queue) []core.Lease {
	return func(q queue) (leases []core.Lease) {
		if len(ids) > 0 {
			q.publish("g", ids...)
		}
		a.ID, a.Payload = "a", []byte("old")
		q.stored(q.b.Publish(q.Context(), keyed(q, a, core.Reject)))
		if claims > 0 {
			leases = append(leases, q.wantClaim(ids[0]))
		}
		return leases
	}
}

func leased(ids ...string) func(q queue) []core.Lease {
	return func(q queue) []core.Lease {
		q.publish("g", ids...)
		return []core.Lease{q.wantClaim(ids[0])}
	}
}

func publishes(n core.NewJob, how core.Conflict, replaced bool) func(q queue, tx pgx.Tx, _ []core.Lease) {
	return func(q queue, tx pgx.Tx, _ []core.Lease) {
		n.Payload = []byte("new")
		res, err := q.b.PublishTx(q.Context(), tx, keyed(q, n, how))
		check(q, err)
		equal(q, "replaced", res[0].Replaced, replaced)
	}
}

func settlesTo(action core.Action, delay time.Duration) func(q queue, tx pgx.Tx, leases []core.Lease) {
	return func(q queue, tx pgx.Tx, leases []core.Lease) {
		list := outcomes(action, leases...)
		list[0].Delay = delay
		res, err := q.b.SettleTx(q.Context(), tx, q.name, list)
		check(q, err)
		check(q, res[0].Err)
	}
}

// topicOf is a topic that the queue can be bound to.
func topicOf(q queue) string { return strings.TrimSuffix(q.name, "@q") }

func plainly(q queue, tx pgx.Tx, _ []core.Lease) {
	q.stored(q.b.PublishTx(q.Context(), tx, q.jobs("g", "late")))
}

var (
	inGroup   = core.NewJob{Group: "g"}
	scheduled = core.NewJob{Group: "g", Delay: hour}
	lone      = core.NewJob{}
	loneLater = core.NewJob{Delay: hour}
	strict    = core.NewJob{Group: "g", Delay: hour, Scheduling: core.Strict}
	late      = core.NewJob{ID: "late", Group: "g"}
	heldCalls = []held{
		{name: "PublishToNewGroup", hold: plainly, after: []string{"late"}},
		{name: "PublishToLeasedGroup", prepare: leased("x"), hold: plainly, after: []string{"late"}},
		{name: "AllOrNothing", hold: func(q queue, tx pgx.Tx, _ []core.Lease) {
			req := q.jobs("g", "late", "later")
			req.AllOrNothing = true
			q.stored(q.b.PublishTx(q.Context(), tx, req))
		}, after: []string{"late", "later"}},
		{name: "Topic", prepare: func(q queue) []core.Lease {
			check(q, q.b.Bind(q.Context(), topicOf(q), q.name))
			return nil
		}, hold: func(q queue, tx pgx.Tx, _ []core.Lease) {
			q.stored(q.b.PublishTx(q.Context(), tx, core.PublishRequest{Jobs: []core.NewJob{{Topic: topicOf(q), ID: "late", Group: "g"}}}))
		}, after: []string{"late"}},
		{name: "KeyFree", hold: publishes(late, core.Reject, false), after: []string{"late"}},
		{name: "KeyTaken", prepare: has(inGroup, 0), hold: publishes(late, core.Reject, false), after: []string{"a"}, undone: []string{"a"}},
		{name: "KeyReturned", prepare: has(inGroup, 0), hold: publishes(late, core.ReturnExisting, false), after: []string{"a"}, undone: []string{"a"}},
		{name: "KeyTakenOver", prepare: func(q queue) []core.Lease {
			q.stored(q.b.Publish(q.Context(), keyed(q, core.NewJob{ID: "a", Group: "g"}, core.Reject)))
			_, err := q.b.Settle(q.Context(), q.name, outcomes(core.Dead, q.wantClaim("a")))
			check(q, err)
			return nil
		}, hold: publishes(late, core.AllowAfterFailure, false), after: []string{"late"}},
		{name: "ReplaceInNewGroup", prepare: has(inGroup, 0), hold: publishes(inGroup, core.ReplacePending, true),
			closed: true, replaces: true, after: []string{"a"}, undone: []string{"a"}},
		{name: "ReplaceBehindNew", prepare: has(inGroup, 0, "x"), hold: publishes(inGroup, core.ReplacePending, true),
			replaces: true, after: []string{"x", "a"}, undone: []string{"x", "a"}},
		{name: "ReplaceBehindRunning", prepare: has(inGroup, 1, "x"), hold: publishes(inGroup, core.ReplacePending, true),
			replaces: true, closed: true, after: []string{"a"}, undone: []string{"a"}},
		{name: "ReplaceScheduled", prepare: has(scheduled, 0), hold: publishes(inGroup, core.ReplacePending, true), replaces: true, after: []string{"a"}},
		{name: "ReplaceScheduledIntoLine", prepare: has(scheduled, 1, "x"), hold: publishes(inGroup, core.ReplacePending, true), replaces: true, after: []string{"a"}},
		{name: "ReplaceStrict", prepare: has(strict, 0), hold: publishes(inGroup, core.ReplacePending, true), replaces: true, closed: true},
		{name: "ReplaceAlone", prepare: has(lone, 0), hold: publishes(lone, core.ReplacePending, true), replaces: true, after: []string{"a"}, undone: []string{"a"}},
		{name: "ReplaceAloneScheduled", prepare: has(loneLater, 0), hold: publishes(lone, core.ReplacePending, true), replaces: true, after: []string{"a"}},
		{name: "SettleDrains", prepare: leased("x"), hold: settlesTo(core.Complete, 0), settles: true, closed: true},
		{name: "SettleCompletes", prepare: leased("x", "y"), hold: settlesTo(core.Complete, 0), settles: true, closed: true, after: []string{"y"}, undone: []string{"y"}},
		{name: "SettleRetries", prepare: leased("x"), hold: settlesTo(core.Retry, 0), settles: true, closed: true, after: []string{"x"}},
		{name: "SettleParks", prepare: leased("x"), hold: settlesTo(core.Retry, hour), settles: true, closed: true},
		{name: "SettleKills", prepare: leased("x"), hold: settlesTo(core.Dead, 0), settles: true, closed: true},
	}
)

// Issue 3, point 4: whatever a program does in a transaction that it keeps open, the
// calls of others come back. Their sessions give up when they have to wait for a
// lock, and acts would be tried until the test's patience ends.
func TestOpenTransactionHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := open(t, testserver.SharedPostgres(t).URL()+"&lock_timeout=1000", Options{})
	for _, h := range heldCalls {
		for i, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead} {
			end, commit := "commit", i != 1
			if !commit {
				end = "rollback"
			}
			t.Run(h.name+"/"+string(level)+"/"+end, func(t *testing.T) {
				q := newQueue(t, b)
				q.name += "@q"
				h.run(q, level, commit)
			})
		}
	}
}

func (h held) run(q queue, level pgx.TxIsoLevel, commit bool) {
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	defer cancel()
	q.publish("o", "o1", "o2")
	q.publish("p", "p1", "p2", "p3")
	others := q.claim(2)
	equal(q, "leases of others", len(others), 2)
	var mine []core.Lease
	if h.prepare != nil {
		mine = h.prepare(q)
	}
	tx := begin(q, pgx.TxOptions{IsoLevel: level})
	h.hold(q, tx, mine)

	var got []string // of g, or of no group
	claim := func() (leases []core.Lease) {
		for _, l := range q.claim(10) {
			leases = append(leases, l)
			if (l.Group == "g" || l.Group == "") && l.JobID != "more" {
				got = append(got, l.JobID)
			}
			if l.JobID == "a" && h.replaces {
				equal(q, "payload", string(l.Job.Payload), map[bool]string{true: "new", false: "old"}[commit])
			}
		}
		return leases
	}
	has := func(leases []core.Lease, id string) {
		q.Helper()
		if !slices.ContainsFunc(leases, func(l core.Lease) bool { return l.JobID == id }) {
			q.Fatalf("claimed %v, want %q among them", leases, id)
		}
	}
	// Of other groups.
	q.publish("free", "free")
	q.stored(q.b.Publish(ctx, core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, ID: "other", Group: "other", Dedup: core.Dedup{Key: "other"}}}}))
	q.publish("g", "more")
	leases := claim()
	has(leases, "free")
	has(leases, "other")
	extended, err := q.b.Extend(ctx, q.name, refs(append(slices.Clone(mine), others...)), 2*hour)
	check(q, err)
	for i, e := range extended {
		check(q, e.Err)
		if i >= len(mine) && time.Until(e.Until) < hour+hour/2 {
			q.Fatalf("lease %d was extended until %v", i, e.Until)
		}
	}
	q.complete(append(leases, others[0])...)
	if !h.settles {
		q.complete(mine...)
	}
	leases = claim()
	has(leases, "o2")
	q.complete(leases...)
	for _, id := range []string{"p1", "p3"} { // one runs
		res, err := q.b.Move(ctx, core.MoveRequest{Queue: q.name, IDs: []string{id}, To: core.StateCancelled})
		check(q, err)
		check(q, res.Errs[0])
	}
	check(q, q.b.ActOnGroup(ctx, q.name, "p", core.PauseGroup))
	check(q, q.b.Configure(ctx, q.name, core.QueueConfig{HeadStart: time.Second}))
	_, err = q.b.QueueInfo(ctx, q.name)
	check(q, err)
	if h.closed && len(got) > 0 || h.replaces && slices.Contains(got, "a") {
		q.Fatalf("claimed %v while the transaction was open", got)
	}
	// The lost ones of g are found when the transaction has ended.
	if commit {
		check(q, tx.Commit(ctx))
	} else {
		check(q, tx.Rollback(ctx))
		h.after = h.undone
		if h.settles {
			q.complete(mine...)
		}
	}
	for leases = claim(); len(leases) > 0; leases = claim() {
		q.complete(leases...)
	}
	if !slices.Equal(got, h.after) {
		q.Fatalf("claimed %v of g, want %v", got, h.after)
	}
}

func refs(leases []core.Lease) []core.LeaseRef {
	list := make([]core.LeaseRef, len(leases))
	for i, l := range leases {
		list[i] = l.LeaseRef
	}
	return list
}
