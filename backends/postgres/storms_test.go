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
// gives up and rolls back. Jobs are scheduled, replaced by their keys, and die; a person
// pauses, holds and releases groups, redrives and deletes. The ledger of what was
// acknowledged is exact, and no group is leased twice at once.
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

	check(t, b.Configure(ctx, q.name, core.QueueConfig{OnExhausted: core.Hold}))
	s := &txStorm{q: q, b: b, pool: pool, table: table, done: map[string]int{}, published: map[string]bool{}, running: map[string]string{}}
	const publishers, each, workers = 4, 60, 4
	var publishing, working sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() { s.publish(ctx, p, each) })
	}
	stop := make(chan struct{})
	for range workers {
		working.Go(func() { s.work(ctx, stop) })
	}
	enough := make(chan struct{})
	var person sync.WaitGroup
	person.Go(func() { s.administer(ctx, enough) })
	publishing.Wait()
	close(enough)
	person.Wait()
	eventually(t, "all jobs are done", func() bool {
		s.setFree(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.done) >= len(s.published) || t.Failed()
	})
	close(stop)
	working.Wait()
	for id := range s.published {
		if s.done[id] != 1 {
			t.Errorf("job %s was completed or deleted %d times", id, s.done[id])
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
	t.Logf("%d jobs, %d of them scheduled, %d deleted, %d times one was replaced, %d one died; %d transactions met others, %d were rolled back on purpose",
		len(s.published), s.scheduled, s.deleted, s.replaced, s.died, s.met.Load(), s.dropped.Load())
	if s.met.Load() == 0 || min(s.scheduled, s.deleted, s.replaced, s.died) == 0 {
		t.Error("something never happened: the storm shows too little")
	}
}

type txStorm struct {
	q     queue
	b     *Backend
	pool  *pgxpool.Pool
	table string

	met, dropped, writes atomic.Int64
	mu                   sync.Mutex
	done                 map[string]int // completed or deleted
	published            map[string]bool
	running              map[string]string // the job of each group, from its claim until it is first settled

	scheduled, deleted, replaced, died int
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
		case errors.Is(err, errRollback), errors.Is(err, core.ErrDuplicate): // its key is that of a job that runs
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
		req := s.q.jobs(fmt.Sprint("g", rand.N(stormGroups)), id)
		job := &req.Jobs[0]
		switch rand.N(6) {
		case 0:
			job.Delay, job.Scheduling = rand.N(30*time.Millisecond), core.Strict
		case 1:
			job.Delay = rand.N(30 * time.Millisecond)
			fallthrough
		case 2:
			job.Dedup = core.Dedup{Key: job.Group, OnConflict: core.ReplacePending}
		}
		drop := rand.N(6) == 0
		var res []core.PublishResult
		ok := s.inTx(ctx, func(tx pgx.Tx) (err error) {
			res, err = s.b.PublishTx(ctx, tx, req)
			if err == nil {
				err = res[0].Err
			}
			if err == nil && drop {
				err = errRollback
			}
			return err
		})
		if !ok {
			continue
		}
		s.mu.Lock()
		if res[0].Replaced {
			s.replaced++
		} else if !res[0].Existing {
			s.published[id] = true
		}
		if job.Delay > 0 {
			s.scheduled++
		}
		s.mu.Unlock()
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
		s.run(res.Leases, true)
		action := core.Complete
		switch rand.N(10) {
		case 0:
			action = core.Dead
		case 1, 2:
			action = core.Retry
		}
		s.run(res.Leases, false)
		ok := s.inTx(ctx, func(tx pgx.Tx) error {
			settled, err := s.b.SettleTx(ctx, tx, s.q.name, outcomes(action, res.Leases...))
			for _, r := range settled {
				err = errors.Join(err, r.Err)
			}
			return err
		})
		s.mu.Lock()
		for _, l := range res.Leases {
			switch {
			case ok && action == core.Complete:
				s.done[l.JobID]++
			case ok && action == core.Dead:
				s.died++
			}
		}
		s.mu.Unlock()
	}
}

// run notes that the jobs of leases run, or do not any more.
func (s *txStorm) run(leases []core.Lease, starts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range leases {
		if other, ok := s.running[l.Group]; starts && ok {
			s.q.Errorf("group %s is leased for %s while %s runs", l.Group, l.JobID, other)
		}
		if starts {
			s.running[l.Group] = l.JobID
		} else {
			delete(s.running, l.Group)
		}
	}
}

const stormGroups = 6

// administer does what a person may do, until there is enough of it.
func (s *txStorm) administer(ctx context.Context, enough chan struct{}) {
	for {
		select {
		case <-enough:
			return
		case <-time.After(rand.N(5 * time.Millisecond)):
		}
		group := fmt.Sprint("g", rand.N(stormGroups))
		switch rand.N(8) {
		case 0, 1:
			s.delete(ctx)
		case 2:
			s.act(ctx, group, core.PauseGroup)
		case 3:
			s.act(ctx, group, core.HoldGroup)
		default:
			s.setFree(ctx)
		}
	}
}

// setFree resumes and releases all groups and redrives what has died.
func (s *txStorm) setFree(ctx context.Context) {
	for g := range stormGroups {
		s.act(ctx, fmt.Sprint("g", g), core.ResumeGroup)
		s.act(ctx, fmt.Sprint("g", g), core.ReleaseGroup)
	}
	if _, err := s.b.Move(ctx, core.MoveRequest{Queue: s.q.name, From: core.StateDead, To: core.StatePending}); err != nil {
		s.q.Errorf("redrive: %v", err)
	}
}

func (s *txStorm) act(ctx context.Context, group string, act core.GroupAct) {
	if err := s.b.ActOnGroup(ctx, s.q.name, group, act); err != nil && !errors.Is(err, core.ErrNotFound) {
		s.q.Errorf("act %v on group %s: %v", act, group, err)
	}
}

// delete deletes a job that is not known to be done, if it still can be.
func (s *txStorm) delete(ctx context.Context) {
	id := ""
	s.mu.Lock()
	for id = range s.published { // any
		if s.done[id] == 0 {
			break
		}
	}
	s.mu.Unlock()
	if id == "" {
		return
	}
	res, err := s.b.Move(ctx, core.MoveRequest{Queue: s.q.name, IDs: []string{id}, To: core.StateGone})
	if err != nil {
		s.q.Errorf("delete: %v", err)
		return
	}
	if res.Errs[0] == nil {
		s.mu.Lock()
		s.done[id]++
		s.deleted++
		s.mu.Unlock()
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
	var who string // has them, and what that one waits for
	conn := connect(t, url)
	defer func() {
		if t.Failed() {
			t.Logf("%d advisory locks: %s", locks, who)
		}
	}()
	eventually(t, "no advisory lock is left", func() bool { // the last cancelled ones may still be at it
		check(t, conn.QueryRow(t.Context(), `SELECT count(*), coalesce(string_agg(concat_ws(' ', a.pid, l.mode, l.granted, a.state, a.wait_event_type, a.wait_event,
				now() - a.query_start, left(a.query, 80), pg_blocking_pids(a.pid)::text), E'\n'), '')
			FROM pg_locks l JOIN pg_database d ON d.oid = l.database LEFT JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE d.datname = current_database() AND l.locktype = 'advisory'`).Scan(&locks, &who))
		return locks == 0
	})
	q.publish("g", "b")
}
