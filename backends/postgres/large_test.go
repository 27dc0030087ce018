package rotapostgres

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// load fills a queue with jobs, in turn over its groups. Of the groups a tenth is
// leased, a tenth parked, and of the others every second has been served before;
// blocked says that all but the last tenth is leased or parked.
func load(t testing.TB, conn *pgx.Conn, queue string, jobs, groups int, blocked bool) {
	t.Helper()
	ready := 2
	if blocked {
		ready = 9
	}
	for _, sql := range []string{
		`INSERT INTO rota.queue (name) VALUES ($1::text)`,
		`INSERT INTO rota.job (seq, place, run_at, created_at, queue, max_attempts, state, inline, id, grp)
			SELECT b + i, b + i, b, b, q.id, 25, 2, true, 'j' || i, 'g' || i % $3::int
			FROM rota.queue q, generate_series(0, $2::int - 1) i, (SELECT rota.us() - 60000000 AS b) b WHERE q.name = $1::text AND $4::int > 0`,
		`INSERT INTO rota.lane (due, queue, tier, key, leased, fence, salt, job)
			SELECT j.place + CASE WHEN i % 10 < $4::int THEN 3600000000 ELSE 0 END, q.id, 0, j.grp, i % 10 < $4::int AND i % 2 = 0,
				CASE WHEN i % 10 < $4::int AND i % 2 = 0 THEN 1 ELSE 0 END, 1, CASE WHEN i % 10 < $4::int AND i % 2 = 0 THEN j.seq END
			FROM rota.queue q, generate_series(0, $3::int - 1) i, LATERAL (SELECT * FROM rota.job x WHERE x.queue = q.id AND x.id = 'j' || i LIMIT 1) j
			WHERE q.name = $1::text AND (i % 10 < $4::int OR i % 2 = 0) AND $2::int > 0`,
		`INSERT INTO rota.seat (queue, key) SELECT l.queue, l.key FROM rota.lane l, rota.queue q WHERE l.queue = q.id AND q.name = $1::text AND NOT l.lone`,
		`INSERT INTO rota.arrival (at, place, queue, tier, grp)
			SELECT j.place, j.place, q.id, 0, j.grp FROM rota.queue q, generate_series(0, $3::int - 1) i,
				LATERAL (SELECT * FROM rota.job x WHERE x.queue = q.id AND x.id = 'j' || i LIMIT 1) j
			WHERE q.name = $1::text AND NOT (i % 10 < $4::int OR i % 2 = 0) AND $2::int > 0`,
	} {
		args := []any{queue, jobs, groups, ready}
		_, err := conn.Exec(t.Context(), sql, args[:len(argsOf(sql))]...)
		check(t, err)
	}
}

// argsOf gives the parameters that a statement has.
func argsOf(sql string) []string {
	names := parameter.FindAllString(sql, -1)
	slices.Sort(names)
	return slices.Compact(names)
}

var parameter = regexp.MustCompile(`\$\d`)

// plans collects the plans of all statements, those in functions too, that a pool
// of one connection carries out.
type plans struct {
	mu    sync.Mutex
	texts []string
}

func (p *plans) pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	check(t, err)
	config.MaxConns = 1
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.texts = append(p.texts, n.Message)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
			SET auto_explain.log_analyze = on; SET auto_explain.log_buffers = on; SET auto_explain.log_timing = off; SET auto_explain.log_level = notice`)
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// take gives the plans since the last call.
func (p *plans) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	texts := p.texts
	p.texts = nil
	return texts
}

var (
	planNode = regexp.MustCompile(`\(actual rows=([\d.]+) loops=(\d+)\)`)
	fetched  = regexp.MustCompile(`Heap Fetches: (\d+)`)
	removed  = regexp.MustCompile(`Rows Removed by [\w ]+: (\d+)`)
	byIndex  = regexp.MustCompile(`(?:Index Scan|Index Only Scan)(?: Backward)? using (\w+)`)
)

// mostRows is how many rows a node of a plan may have looked at: some times the
// batch, far less than there are groups.
const mostRows = 1500

// judge fails the test if a plan scans a table, or looks at more rows than a batch
// has anything to do with. It gives the indexes that were used.
func judge(t *testing.T, what string, texts []string) []string {
	t.Helper()
	if len(texts) == 0 {
		t.Fatalf("%s: no plan was told", what)
	}
	var used []string
	for _, text := range texts {
		// The table of queues has a row for each and may well be read as a whole.
		if strings.Contains(strings.ReplaceAll(text, "Seq Scan on queue ", ""), "Seq Scan on") || strings.Contains(text, "Bitmap") {
			t.Errorf("%s scans a table:\n%s", what, text)
		}
		for _, m := range planNode.FindAllStringSubmatch(text, -1) {
			rows, _ := strconv.ParseFloat(m[1], 64)
			loops, _ := strconv.Atoi(m[2])
			if rows*float64(loops) > mostRows {
				t.Errorf("%s looks at %v rows %d times:\n%s", what, rows, loops, text)
				break
			}
		}
		for _, m := range append(removed.FindAllStringSubmatch(text, -1), fetched.FindAllStringSubmatch(text, -1)...) {
			if n, _ := strconv.Atoi(m[1]); n > mostRows {
				t.Errorf("%s looks at %d rows in vain:\n%s", what, n, text)
			}
		}
		for _, m := range byIndex.FindAllStringSubmatch(text, -1) {
			used = append(used, m[1])
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// wantIndexes fails unless a call used all these indexes.
func wantIndexes(t *testing.T, what string, texts []string, want ...string) {
	t.Helper()
	used := judge(t, what, texts)
	for _, name := range want {
		if !slices.Contains(used, name) {
			t.Errorf("%s used the indexes %v, want %s among them", what, used, name)
		}
	}
}

// TestLarge is about a queue of a million jobs in a hundred thousand groups, and
// smaller ones beside it.
func TestLarge(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.Args("-c", "autovacuum=off", "-c", "max_wal_size=4GB", "-c", "shared_buffers=256MB"))
	open(t, server.URL(), Options{})
	conn := connect(t, server.URL())
	early := make([]planned, 4)
	other := open(t, server.URL(), Options{Notify: NotifyOff})
	early[0] = plan(t, server.URL(), "claims")
	early[0].warmClaims(other)
	for i, jobs := range []int{1, 20, 200} {
		p := plan(t, server.URL(), fmt.Sprint("by", jobs))
		p.warm(func() { p.grow(other, "g", jobs) })
		early[i+1] = p
	}
	from := time.Now()
	load(t, conn, "big", 1_000_000, 100_000, false)
	load(t, conn, "small", 10_000, 1_000, false)
	load(t, conn, "blocked", 10_000, 10_000, true)
	t.Logf("loaded in %v", time.Since(from).Round(time.Millisecond))

	for _, p := range early {
		t.Run("PlansOf/"+p.name, func(t *testing.T) { testPlans(t, p.on(t, "big")) })
	}
	t.Run("PlansBeforeAnalyze", func(t *testing.T) { testPlans(t, plan(t, server.URL(), "big")) })
	_, err := conn.Exec(t.Context(), "ANALYZE")
	check(t, err)
	t.Run("PlansAfterAnalyze", func(t *testing.T) { testPlans(t, plan(t, server.URL(), "big")) })
	t.Run("ClaimCost", func(t *testing.T) { testClaimCost(t, server.URL()) })
}

// planned is a queue by way of one session, whose plans are told.
type planned struct {
	queue
	*plans
}

func plan(t *testing.T, url, queueName string) planned {
	t.Helper()
	p := planned{plans: &plans{}}
	b, err := New(t.Context(), p.pool(t, url), Options{Notify: NotifyOff})
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	p.queue = queue{t, b, queueName}
	return p
}

// on is the same session with another queue.
func (p planned) on(t *testing.T, queueName string) planned {
	return planned{queue{t, p.b, queueName}, p.plans}
}

// grow publishes jobs by way of another session.
func (p planned) grow(other *Backend, group string, jobs int) {
	var req core.PublishRequest
	for k := range jobs {
		req.Jobs = append(req.Jobs, core.NewJob{Queue: p.name, Group: fmt.Sprint(group, k)})
	}
	p.stored(other.Publish(p.Context(), req))
}

// warmClaims makes the session plan claims, and nothing else. What it knows of the indexes that
// claims do not use is from when the tables were small.
func (p planned) warmClaims(other *Backend) {
	p.grow(other, "g", 20)
	q := queue{p.TB, other, p.name}
	res, err := other.Settle(p.Context(), p.name, outcomes(core.Release, q.claim(20)...))
	check(p, err)
	for _, r := range res {
		check(p, r.Err)
	}
	equal(p, "leases", len(p.claim(1)), 1)
	for range 11 { // until indexes have two levels, and the planner takes the table for one of a few pages
		p.grow(other, "g", 20)
	}
	equal(p, "leases", len(p.claim(10)), 10)
	p.grow(other, "new", 20)
	equal(p, "leases", len(p.claim(20)), 20)
}

// warm does what testPlans does in a queue that has few jobs at first and more each time, and by
// that makes the session plan its statements. It keeps these plans.
func (p planned) warm(grow func()) {
	var late []core.Lease
	for _, step := range []func(){
		func() { p.publish("g0", "a", "b"); p.publish("", "c") },
		func() {
			p.stored(p.b.Publish(p.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: p.name, Group: "g0", Dedup: core.Dedup{Key: "k"}}}}))
		},
		func() { late = p.claim(10) },
		func() {
			_, err := p.b.Extend(p.Context(), p.name, []core.LeaseRef{late[0].LeaseRef}, hour)
			check(p, err)
		},
		func() { p.complete(late[:1]...) },
		func() {
			_, err := p.b.Settle(p.Context(), p.name, outcomes(core.Retry, late[1:]...))
			check(p, err)
		},
		func() {
			res, err := p.b.Claim(p.Context(), core.ClaimRequest{Queue: p.name, Max: 10, Lease: hour, ByTurn: true})
			check(p, err)
			p.complete(res.Leases...)
		},
		func() {
			_, err := p.b.Group(p.Context(), p.name, "g0")
			check(p, err)
			_, err = p.b.Move(p.Context(), core.MoveRequest{Queue: p.name, From: core.StatePending, Group: "g0", To: core.StateCancelled})
			check(p, err)
			_, err = p.b.Purge(p.Context(), p.name, 100)
			check(p, err)
		},
	} {
		step()
		grow()
	}
}

func testPlans(t *testing.T, p planned) {
	q, b := p.queue, p.b
	high := func(n int) (req core.PublishRequest) {
		for i := range n {
			req.Jobs = append(req.Jobs, core.NewJob{Queue: q.name, Group: fmt.Sprint("high", i), Priority: core.MaxPriority})
		}
		return req
	}
	p.take()
	for round := range 2 { // the first plans, the second uses what was planned
		var req core.PublishRequest
		for i := range 100 {
			req.Jobs = append(req.Jobs, core.NewJob{Queue: q.name, Group: fmt.Sprint("g", i*997)})
		}
		req.Jobs = append(req.Jobs, core.NewJob{Queue: q.name})
		q.stored(b.Publish(t.Context(), req))
		judge(t, "publish", p.take())
		q.stored(b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{
			{Queue: q.name, Group: "g5", Dedup: core.Dedup{Key: fmt.Sprint("k", round, time.Now().UnixNano())}},
		}}))
		wantIndexes(t, "publish with a key", p.take(), "dedup_pkey", "job_pkey")

		leases := q.claim(50)
		equal(t, "leases", len(leases), 50)
		wantIndexes(t, "claim", p.take(), "arrival_turn", "lane_turn", "job_line", "seat_pkey")
		refs := make([]core.LeaseRef, len(leases))
		for i := range leases {
			refs[i] = leases[i].LeaseRef
		}
		_, err := b.Extend(t.Context(), q.name, refs, hour)
		check(t, err)
		wantIndexes(t, "extend", p.take(), "job_pkey")
		q.complete(leases[:40]...) // an extended lease has moved and is found by key
		wantIndexes(t, "settle", p.take(), "lane_key", "job_pkey", "job_line")
		retries := outcomes(core.Retry, leases[40:]...)
		for i := range retries {
			retries[i].Delay = time.Duration(i%2) * hour
		}
		_, err = b.Settle(t.Context(), q.name, retries)
		check(t, err)
		wantIndexes(t, "retry", p.take(), "lane_key", "job_pkey", "job_line")

		q.stored(b.Publish(t.Context(), high(5)))
		p.take()
		res, err := b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 50, Lease: hour, ByTurn: true})
		check(t, err)
		equal(t, "leases", len(res.Leases), 50)
		wantIndexes(t, "claim by turn", p.take(), "arrival_turn", "lane_turn", "job_line", "seat_pkey")
		q.complete(res.Leases...)
		p.take()
		_, err = b.Group(t.Context(), q.name, "g7")
		check(t, err)
		wantIndexes(t, "group", p.take(), "lane_key", "job_line")
		of := fmt.Sprint("g", 10*(1001+round)+9)
		moved, err := b.Move(t.Context(), core.MoveRequest{Queue: q.name, From: core.StatePending, Group: of, To: core.StateCancelled, Limit: 1}) // of its ten
		check(t, err)
		equal(t, "jobs of "+of, moved.Moved, 1)
		wantIndexes(t, "move of a group", p.take(), "job_line", "job_aside", "lane_key")
		_, err = b.Purge(t.Context(), q.name, 100)
		check(t, err)
		judge(t, "purge", p.take())
	}
}

// claimTimes gives the median time of a claim of ten groups, in pieces between those of
// other queues so that all see the same noise.
func claimTimes(t *testing.T, b *Backend, queues ...string) []time.Duration {
	t.Helper()
	times := make([][]time.Duration, len(queues))
	for range 80 {
		for i, name := range queues {
			q := queue{t, b, name}
			from := time.Now()
			leases := q.claim(10)
			times[i] = append(times[i], time.Since(from))
			equal(t, "leases from "+name, len(leases), 10)
			res, err := b.Settle(t.Context(), name, outcomes(core.Release, leases...))
			check(t, err)
			for _, r := range res {
				check(t, r.Err)
			}
		}
	}
	medians := make([]time.Duration, len(queues))
	for i := range times {
		slices.Sort(times[i])
		medians[i] = times[i][len(times[i])/2]
	}
	return medians
}

// A claim costs the same with a hundred times the groups, and behind ten times as
// many that are leased or parked. The bound is wide, as other tests run beside.
func testClaimCost(t *testing.T, url string) {
	const bound = 2
	b := open(t, url, Options{Notify: NotifyOff})
	best := []float64{100, 100}
	for range 5 {
		m := claimTimes(t, b, "small", "big", "blocked")
		t.Logf("claims of ten groups: %v of 1,000 groups, %v of 100,000, %v behind 9,000 that are leased or parked", m[0], m[1], m[2])
		for i := range best {
			best[i] = min(best[i], float64(m[i+1])/float64(m[0]))
		}
		if slices.Max(best) < bound {
			return
		}
	}
	t.Errorf("claims take %.2f and %.2f times as long with more groups", best[0], best[1])
}
