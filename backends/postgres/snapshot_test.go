package rotapostgres

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// With a snapshot held open nothing that has died can be removed. Claims do not
// look at all of it again and again.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	b := open(t, server.URL(), Options{Notify: NotifyOff})
	q := queue{t, b, "q"}
	old, err := connect(t, server.URL()).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	check(t, err)
	_, err = old.Exec(t.Context(), "SELECT 1")
	check(t, err)
	const batch, batches = 500, 60
	rounds := make([]time.Duration, batches)
	for i := range rounds {
		var req core.PublishRequest
		for k := range batch {
			req.Jobs = append(req.Jobs, core.NewJob{Queue: q.name, Group: fmt.Sprint("g", (i*batch+k)%5000)})
		}
		from := time.Now()
		q.stored(b.Publish(t.Context(), req))
		for done := 0; done < batch; {
			leases := q.claim(100)
			q.complete(leases...)
			done += len(leases)
		}
		rounds[i] = time.Since(from)
	}

	var p plans
	planned, err := New(t.Context(), p.pool(t, server.URL()), Options{Notify: NotifyOff})
	check(t, err)
	known := planned.bounds.of(q.name)
	known.values, known.born = b.bounds.of(q.name).values, time.Now()
	q.b = planned
	for range 3 { // time passes, and the bounds follow
		time.Sleep(100 * time.Millisecond)
		q.publish("new", "a", "b")
		p.take()
		l := q.wantClaim("a")
		wantIndexes(t, "claim", p.take(), "arrival_turn", "lane_turn")
		q.complete(l)
		judge(t, "settle", p.take())
		q.complete(q.wantClaim("b"))
	}
	check(t, planned.Close())
	check(t, old.Rollback(t.Context()))
	first, last := slices.Clone(rounds[5:15]), slices.Clone(rounds[batches-10:])
	slices.Sort(first)
	slices.Sort(last)
	t.Logf("%d jobs took %v at first, and %v after %d jobs", batch, first[5], last[5], batch*batches)
	if last[5] > 3*first[5] { // other tests run beside this one
		t.Errorf("%d jobs took %v at first, and %v after %d jobs with a snapshot held open", batch, first[5], last[5], batch*batches)
	}
}

var sharedHit = regexp.MustCompile(`Buffers: shared hit=(\d+)`)

// pagesOf gives how many pages the largest of some statements looked at: the one
// that was sent, as it has those of the functions in it.
func pagesOf(t testing.TB, texts []string) (most int) {
	t.Helper()
	for _, text := range texts {
		for _, m := range sharedHit.FindAllStringSubmatch(text, -1) {
			n, err := strconv.Atoi(m[1])
			check(t, err)
			most = max(most, n)
		}
	}
	if most == 0 {
		t.Fatal("no plan tells of buffers")
	}
	return most
}

// With a snapshot held open each lease leaves dead versions of its group's lane,
// in the table and in each index. Neither claim nor settle looks at them, however
// many there are, and whether the groups drain now and then or not.
func TestOldSnapshotFewGroups(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.Args("-c", "autovacuum=off"))
	var p plans
	b, err := New(t.Context(), p.pool(t, server.URL()), Options{Notify: NotifyOff})
	check(t, err)
	defer func() { check(t, b.Close()) }()
	old, err := connect(t, server.URL()).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	check(t, err)
	_, err = old.Exec(t.Context(), "SELECT 1")
	check(t, err)
	q := queue{t, b, "q"}
	const groups, depth, drains, sample = 4, 40, 8, 15
	var claims, settles []int
	for range drains {
		for g := range groups {
			ids := make([]string, depth)
			q.publish(fmt.Sprint("g", g), ids...) // with ids made for them
		}
		for range depth {
			p.take()
			leases := q.claim(groups)
			claims = append(claims, pagesOf(t, p.take()))
			equal(t, "leases", len(leases), groups)
			q.complete(leases...)
			settles = append(settles, pagesOf(t, p.take()))
		}
	}
	check(t, old.Rollback(t.Context()))
	for what, pages := range map[string][]int{"claim": claims, "settle": settles} {
		// Not the first, which load the catalog.
		first, last := slices.Clone(pages[sample:2*sample]), slices.Clone(pages[len(pages)-2*sample:len(pages)-sample])
		slices.Sort(first)
		slices.Sort(last)
		t.Logf("a %s of %d groups looked at %d pages at first, and at %d after %d leases of each", what, groups, first[sample/2], last[sample/2], drains*depth)
		if last[sample/2] > first[sample/2]*3/2+20 {
			t.Errorf("a %s of %d groups looked at %d pages at first, and at %d after %d leases of each with a snapshot held open",
				what, groups, first[sample/2], last[sample/2], drains*depth)
		}
	}
}

// A server that crashed may have lost its last commits, and a job that was done is
// there again with its arrival, before the time from which on a process looks. It
// is neither overtaken nor forgotten.
func TestOldJobAfterCrash(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url, Options{Notify: NotifyOff})
	q := newQueue(t, b)
	q.publish("g", "old")
	q.complete(q.wantClaim("old"))
	conn := connect(t, url)
	var place int64
	check(t, conn.QueryRow(t.Context(), "SELECT rota.us()").Scan(&place))
	eventually(t, "the process knows where arrivals begin", func() bool {
		q.publish("other", "x")
		q.complete(q.wantClaim("x"))
		return b.bounds.of(q.name).values[8] > place
	})
	for _, sql := range []string{
		`INSERT INTO rota.job (seq, place, run_at, created_at, queue, max_attempts, state, inline, id, grp)
			SELECT $2::int8, $2, $2, $2, q.id, 25, 2, true, 'old', 'g' FROM rota.queue q WHERE q.name = $1::text`,
		`INSERT INTO rota.arrival (at, place, queue, tier, grp) SELECT $2::int8, $2, q.id, 0, 'g' FROM rota.queue q WHERE q.name = $1::text`,
		`TRUNCATE rota.era`, // as a server that recovers does
	} {
		args := []any{q.name, place}
		_, err := conn.Exec(t.Context(), sql, args[:len(argsOf(sql))]...)
		check(t, err)
	}
	q.publish("g", "new")
	q.complete(q.wantClaim("old"))
	q.complete(q.wantClaim("new"))
	q.wantNothing()
}
