package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// Programs publish and settle in transactions of every isolation level, which also
// lock rows of their own in opposite orders, so that the server breaks deadlocks and
// refuses what it can not serialize. Each tries again until it has committed, or
// gives up and rolls back; the ledger of what was acknowledged is exact.
func TestTransactionStorm(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	url := testserver.SharedPostgres(t).URL()
	b := openShared(t)
	q := newQueue(t, b)
	q.publish("g0", "first")
	q.complete(q.wantClaim("first"))
	pool := newPool(t, url+"&pool_max_conns=12&deadlock_timeout=20")
	table := pgx.Identifier{testserver.UniqueName(t)}.Sanitize()
	_, err := pool.Exec(ctx, "CREATE TABLE "+table+" (id int PRIMARY KEY, n int NOT NULL); INSERT INTO "+table+" SELECT i, 0 FROM generate_series(0, 3) i")
	check(t, err)
	defer func() { _, _ = pool.Exec(context.Background(), "DROP TABLE "+table) }()

	s := &txStorm{q: q, b: b, pool: pool, table: table, done: map[string]int{}, published: map[string]bool{}}
	const publishers, each, workers = 4, 60, 4
	var publishing, working sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() { s.publish(ctx, p, each) })
	}
	stop := make(chan struct{})
	for range workers {
		working.Go(func() { s.work(ctx, stop) })
	}
	publishing.Wait()
	eventually(t, "all jobs are done", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.done) >= len(s.published) || t.Failed()
	})
	close(stop)
	working.Wait()
	for id := range s.published {
		if s.done[id] != 1 {
			t.Errorf("job %s was completed %d times", id, s.done[id])
		}
	}
	for id := range s.done {
		if !s.published[id] {
			t.Errorf("job %s was rolled back and done all the same", id)
		}
	}
	q.wantNothing()
	var n int
	check(t, pool.QueryRow(ctx, "SELECT sum(n) FROM "+table).Scan(&n))
	equal(t, "writes of the programs", n, int(s.writes.Load()))
	t.Logf("%d jobs; %d transactions met others, %d were rolled back on purpose", len(s.published), s.met.Load(), s.dropped.Load())
	if s.met.Load() == 0 {
		t.Error("no transaction met another one: the storm shows too little")
	}
}

type txStorm struct {
	q     queue
	b     *Backend
	pool  *pgxpool.Pool
	table string

	met, dropped, writes atomic.Int64
	mu                   sync.Mutex
	done                 map[string]int
	published            map[string]bool
}

// inTx carries out do and two writes of the program itself until the transaction
// commits. It reports false if do wanted none of it.
func (s *txStorm) inTx(ctx context.Context, do func(tx pgx.Tx) error) bool {
	for ctx.Err() == nil {
		rows := rand.Perm(4)[:2]
		err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: levels[rand.N(len(levels))]}, func(tx pgx.Tx) error {
			write := func(id int) error {
				_, err := tx.Exec(ctx, "UPDATE "+s.table+" SET n = n + 1 WHERE id = $1", id)
				return storeError(ctx, "the program's write", err)
			}
			if err := write(rows[0]); err != nil {
				return err
			}
			if err := do(tx); err != nil {
				return err
			}
			return write(rows[1])
		})
		switch {
		case err == nil:
			s.writes.Add(2)
			return true
		case errors.Is(err, errRollback):
			s.dropped.Add(1)
			return false
		case errors.Is(err, ErrTxConflict), conflicts(err):
			s.met.Add(1)
		default:
			s.q.Errorf("a transaction failed with something else than a conflict: %v", err)
			return false
		}
	}
	return false
}

func (s *txStorm) publish(ctx context.Context, p, n int) {
	for i := range n {
		id := fmt.Sprintf("p%d-%d", p, i)
		drop := rand.N(6) == 0
		ok := s.inTx(ctx, func(tx pgx.Tx) error {
			res, err := s.b.PublishTx(ctx, tx, s.q.jobs(fmt.Sprint("g", rand.N(6)), id))
			if err == nil {
				err = res[0].Err
			}
			if err == nil && drop {
				err = errRollback
			}
			return err
		})
		if ok {
			s.mu.Lock()
			s.published[id] = true
			s.mu.Unlock()
		}
	}
}

func (s *txStorm) work(ctx context.Context, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		res, err := s.b.Claim(ctx, core.ClaimRequest{Queue: s.q.name, Max: 2, Lease: hour, ByTurn: rand.N(2) == 0})
		if err != nil {
			s.q.Errorf("claim: %v", err)
			return
		}
		if len(res.Leases) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		action := core.Complete
		if rand.N(5) == 0 {
			action = core.Retry
		}
		ok := s.inTx(ctx, func(tx pgx.Tx) error {
			settled, err := s.b.SettleTx(ctx, tx, s.q.name, outcomes(action, res.Leases...))
			for _, r := range settled {
				err = errors.Join(err, r.Err)
			}
			return err
		})
		if ok && action == core.Complete {
			s.mu.Lock()
			for _, l := range res.Leases {
				s.done[l.JobID]++
			}
			s.mu.Unlock()
		}
	}
}

// Each call may run on another session, and leaves none of its own state behind:
// no lock, no setting, no prepared statement, no LISTEN.
func TestNoSessionState(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testserver.SharedPostgres(t).URL()+"&pool_max_conns=1&default_query_exec_mode=exec")
	b, err := New(t.Context(), pool, Options{Notify: NotifyOff})
	check(t, err)
	defer func() { check(t, b.Close()) }()
	state := func() (text string) {
		check(t, pool.QueryRow(t.Context(), `SELECT concat_ws(' ', (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
			(SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()),
			(SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings WHERE source = 'session'))`).Scan(&text)) // one session: pool_max_conns=1
		return text
	}
	before := state()
	q := newQueue(t, b)
	wantWorks(t, b)
	q.publish("g", "a", "b")
	l := q.wantClaim("a")
	_, err = b.Extend(t.Context(), q.name, []core.LeaseRef{l.LeaseRef}, hour)
	check(t, err)
	check(t, b.Save(t.Context(), l.LeaseRef, core.Patch{Result: []byte("r")}))
	q.complete(l)
	q.stored(b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, Dedup: core.Dedup{Key: "k"}}}}))
	_, err = b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, ID: "b"}}})
	check(t, err)
	_, err = b.Purge(t.Context(), q.name, 10)
	check(t, err)
	equal(t, "state of the session", state(), before)
}

// A statement that is cancelled at any moment leaves no lock behind, which would
// make all publishes and claims wait.
func TestCancelledLeavesNoLock(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url+"&pool_max_conns=4", Options{Notify: NotifyOff})
	q := newQueue(t, b)
	q.publish("g", "a")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Millisecond))
				_, _ = b.Publish(ctx, q.jobs(fmt.Sprint("g", rand.N(5)), ""))
				cancel()
			}
		})
	}
	wg.Wait()
	var locks int
	check(t, connect(t, url).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory'`).Scan(&locks))
	equal(t, "advisory locks left", locks, 0)
	q.publish("g", "b")
}
