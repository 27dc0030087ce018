package rotapostgres

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// The server closes connections while calls are under way on them. Each call is
// answered with what is known, and the pool heals: the next calls work.
func TestConnectionsClosedByServer(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url+"&pool_max_conns=3", Options{Notify: NotifyOff})
	q := newQueue(t, b)
	q.publish("g", "taken")
	killer, other := connect(t, url), connect(t, url)
	terminate := func(what string) {
		t.Helper()
		eventually(t, "a session is closed: "+what, func() bool {
			var n int
			check(t, killer.QueryRow(t.Context(), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rota' AND "+what).Scan(&n))
			return n > 0
		})
	}
	// In the middle of a call: it waits for an id that an open transaction has taken.
	tx, err := other.Begin(t.Context())
	check(t, err)
	_, err = b.PublishTx(t.Context(), tx, q.jobs("g", "a"))
	check(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := b.Publish(t.Context(), q.jobs("g", "b", "a"))
		if !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("a call whose connection was closed: got %v, want ErrUnavailable", err)
		}
	})
	terminate("wait_event_type = 'Lock'")
	wg.Wait()
	check(t, tx.Rollback(t.Context()))
	equal(t, "state of what was under way", q.state("b"), core.StateGone)

	// Between calls: a dead connection costs one call, which says that the server can
	// not be reached, and the pool has three.
	for range 3 {
		l := q.claim(1)
		equal(t, "leases", len(l), 1)
		terminate("state = 'idle'")
		res, err := b.Settle(t.Context(), q.name, outcomes(core.Release, l...))
		for tries := 0; err != nil; tries++ {
			wantError(t, err, core.ErrUnavailable, "")
			equal(t, "more dead connections than the pool has", tries >= 3, false)
			res, err = b.Settle(t.Context(), q.name, outcomes(core.Release, l...))
		}
		check(t, res[0].Err)
	}
	q.complete(q.wantClaim("taken"))
}

// A call that only reads does not fail because its connection was closed before it:
// it is made again on another one.
func TestReadOnClosedConnection(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url+"&pool_max_conns=1", Options{Notify: NotifyOff})
	q := newQueue(t, b)
	q.publish("g", "a")
	killer := connect(t, url)
	for what, read := range map[string]func() error{
		"Now": func() error { _, err := b.Now(t.Context()); return err },
		"Job": func() error { _, err := b.Job(t.Context(), q.name, "a"); return err },
		"Jobs": func() error {
			_, err := b.Jobs(t.Context(), core.JobFilter{Queue: q.name, State: core.StatePending})
			return err
		},
		"Group":     func() error { _, err := b.Group(t.Context(), q.name, "g"); return err },
		"QueueInfo": func() error { _, err := b.QueueInfo(t.Context(), q.name); return err },
		"Queues":    func() error { _, err := b.Queues(t.Context()); return err },
		"Events":    func() error { _, err := b.Events(t.Context(), core.EventFilter{Queue: q.name}); return err },
		"GetRecord": func() error {
			if _, err := b.GetRecord(t.Context(), "space", "key"); !errors.Is(err, core.ErrNotFound) {
				return err
			}
			return nil
		},
	} {
		check(t, read())
		eventually(t, "the session is closed", func() bool {
			var n int
			check(t, killer.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'rota'`).Scan(&n))
			return n == 0
		})
		if err := read(); err != nil {
			t.Errorf("%s on a connection that was closed: %v", what, err)
		}
	}
}

// The server's clock is set back by an hour. The store's never steps back; what was
// due stays due, and new jobs flow.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t, testserver.ClockOffset(time.Hour))
	b := open(t, server.URL(), Options{})
	q := newQueue(t, b)
	q.publish("g", "a", "b")
	before, err := b.Now(t.Context())
	check(t, err)
	l := q.wantClaim("a")
	server.SetClock(0)
	after, err := b.Now(t.Context())
	check(t, err)
	// One publish before it read the clock itself, which the sequence has not seen.
	if back := before.Sub(after); back > 10*time.Second {
		t.Errorf("the store's clock stepped back by %v", back)
	}
	q.complete(l)
	next := q.wantClaim("b")
	if next.Fence <= l.Fence {
		t.Errorf("fence %d after %d", next.Fence, l.Fence)
	}
	q.complete(next)
	q.publish("h", "c")
	q.complete(q.wantClaim("c"))
}
