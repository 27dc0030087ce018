package rotapostgres

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A session that is cancelled while it waits for the lock of the clock, and is just
// being given it, does not keep it: all publishes would wait for it, and for ever.
func TestCancelledTakeLeavesNoLock(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	open(t, url, Options{})
	const sessions = 8
	var pids []uint32
	var conns []*pgx.Conn
	for range sessions {
		conn := connect(t, url)
		conns, pids = append(conns, conn), append(pids, conn.PgConn().PID())
	}
	ended := make(chan struct{})
	var taking, cancelling sync.WaitGroup
	canceller := connect(t, url)
	cancelling.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(rand.N(time.Millisecond)):
				_, err := canceller.Exec(t.Context(), "SELECT pg_cancel_backend($1)", int64(pids[i%sessions]))
				if err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for _, conn := range conns {
		taking.Go(func() {
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
				// Both are usually cancelled.
				_, _ = conn.Exec(t.Context(), "SELECT pg_current_xact_id(), rota.take(1) FROM generate_series(1, 2000)")
				_, _ = conn.Exec(t.Context(), "SELECT rota.rewound() FROM generate_series(1, 2000)")
			}
		})
	}
	taking.Wait()
	close(ended)
	cancelling.Wait()
	var kept int
	check(t, canceller.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
		WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted`).Scan(&kept))
	equal(t, "locks that are kept", kept, 0)
}
