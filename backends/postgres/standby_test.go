package rotapostgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// pair is a primary with the tables, and a standby that follows it.
type pair struct {
	testing.TB
	primary, standby *testserver.PostgresServer
	one, other       *pgx.Conn // to the primary and the standby
}

func newPair(t *testing.T) *pair {
	t.Helper()
	primary := testserver.Postgres(t, testserver.Programs("pg_basebackup"))
	p := &pair{TB: t, primary: primary, standby: primary.Standby(t)}
	p.one, p.other = connect(t, primary.URL()), connect(t, p.standby.URL())
	return p
}

// both is the URL of whichever of the two takes writes.
func (p *pair) both() string {
	return fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write", p.primary.Addr(), p.standby.Addr())
}

// caughtUp waits until the standby has all that the primary has acknowledged.
func (p *pair) caughtUp() {
	p.Helper()
	var at string
	check(p, p.one.QueryRow(context.Background(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&at))
	eventually(p, "the standby has caught up", func() bool {
		var there bool
		check(p, p.other.QueryRow(context.Background(), "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)", at).Scan(&there))
		return there
	})
}

// detach makes the standby hear nothing more.
func (p *pair) detach() {
	p.Helper()
	_, err := p.other.Exec(context.Background(), "ALTER SYSTEM SET primary_conninfo = ''")
	check(p, err)
	_, err = p.other.Exec(context.Background(), "SELECT pg_reload_conf()")
	check(p, err)
	eventually(p, "the standby is detached", func() bool {
		var n int
		check(p, p.one.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_replication").Scan(&n))
		return n == 0
	})
}

// failOver kills the primary and promotes the standby.
func (p *pair) failOver() {
	p.Helper()
	p.primary.Kill()
	var done bool
	check(p, p.other.QueryRow(context.Background(), "SELECT pg_promote()").Scan(&done))
	equal(p, "promoted", done, true)
}

// A standby is refused with one sentence that says what to do, whether it was one
// at the start or became one.
func TestStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	wantOpen(t, p.standby.URL(), core.ErrMisconfigured, "connect to the primary")
	wantError(t, Migrate(t.Context(), p.other, "", SchemaVersion), core.ErrMisconfigured, "connect to the primary")
	b := open(t, p.both(), Options{}) // finds the primary
	q := newQueue(t, b)
	q.publish("g", "a")
	p.caughtUp()
	check(t, CheckSchema(t.Context(), p.other, ""))
	wantOpen(t, p.standby.URL(), core.ErrMisconfigured, "connect to the primary")
	pool := newPool(t, p.standby.URL())
	for _, policy := range []MigratePolicy{MigrateAuto, MigrateCheck} {
		_, err := New(t.Context(), pool, Options{Migrate: policy})
		wantError(t, err, core.ErrMisconfigured, "connect to the primary")
	}
	ro := &Backend{pool: pool, opts: b.opts, base: b.base, hints: b.hints, watch: b.watch, hub: b.hub} // as if opened before
	_, err := ro.Publish(t.Context(), q.jobs("g", "b"))
	wantError(t, err, core.ErrMisconfigured, "connect to the primary")
	_, err = ro.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: hour})
	wantError(t, err, core.ErrMisconfigured, "connect to the primary")
	job, err := ro.Job(t.Context(), q.name, "a") // to look is possible
	check(t, err)
	equal(t, "state on the standby", job.State, core.StatePending)
	q.complete(q.wantClaim("a"))
}

// A standby that lags is promoted. Leases it has heard of are good, tokens it has
// not are refused, also after the same job was leased again, and fences grow. What
// it has not heard of is lost: that is what asynchronous replication means.
func TestPromotionOfLaggingStandby(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	b := open(t, p.both(), Options{})
	q := newQueue(t, b)
	q.publish("replicated", "a")
	known := q.wantClaim("a")
	q.publish("g", "b")
	p.caughtUp()
	p.detach()
	unknown := q.wantClaim("b")
	q.publish("h", "lost")

	p.failOver()
	eventually(t, "the same backend works on", func() bool {
		_, err := b.Now(t.Context())
		return err == nil
	})
	refused := func(l core.Lease) {
		t.Helper()
		res, err := b.Settle(t.Context(), q.name, outcomes(core.Complete, l))
		check(t, err)
		wantError(t, res[0].Err, core.ErrLeaseLost, "")
	}
	refused(unknown)
	q.complete(known)
	again := q.wantClaim("b")
	if again.Fence <= unknown.Fence || again.Token == unknown.Token {
		t.Errorf("leased again with fence %d and token %q, after fence %d and token %q", again.Fence, again.Token, unknown.Fence, unknown.Token)
	}
	refused(unknown)
	q.complete(again)
	equal(t, "what was not replicated", q.state("lost"), core.StateGone)
	q.publish("h", "c")
	q.complete(q.wantClaim("c"))
}
