package rotapostgres

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// Claims that meet large jobs ask for fewer, 8 MiB or one at a time, and come back at once;
// small jobs let them ask for more again.
func TestClaimOfLargeJobs(t *testing.T) {
	t.Parallel()
	b := open(t, testserver.SharedPostgres(t).URL(), Options{Limits: core.Limits{MaxPayload: 10 << 20}})
	q := newQueue(t, b)
	sizes := []int{9 << 20, 9 << 20, 3 << 20, 3 << 20, 3 << 20}
	for range 20 {
		sizes = append(sizes, 1)
	}
	for i, size := range sizes {
		req := q.jobs(fmt.Sprint("g", i), fmt.Sprint(i))
		req.Jobs[0].Payload = make([]byte, size)
		q.stored(b.Publish(t.Context(), req))
	}
	q.b.bounds.of(q.name).met(1, 1<<20) // what came before
	at := 0
	for n, want := range []int{8, 2, 4, 9, 2} {
		res, err := b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 20, Lease: hour})
		check(t, err)
		equal(t, fmt.Sprintf("leases of claim %d", n+1), len(res.Leases), want)
		for _, l := range res.Leases {
			equal(t, "job", l.JobID, fmt.Sprint(at))
			equal(t, "size", len(l.Job.Payload), sizes[at])
			at++
		}
		if at < len(sizes) && (res.Next <= 0 || res.Next > time.Millisecond) {
			t.Fatalf("with jobs left, the next claim is to come in %v", res.Next)
		}
	}
	q.wantNothing()
}

// stalling is a connection that stops to be read from, once it is told to and has given
// some of an answer.
type stalling struct {
	net.Conn
	stop *atomic.Bool
	n    int
	end  chan struct{}
}

func (s *stalling) Read(p []byte) (int, error) {
	if s.stop.Load() && s.n > 100_000 {
		<-s.end
		return 0, net.ErrClosed
	}
	n, err := s.Conn.Read(p)
	if s.stop.Load() {
		s.n += n
	}
	return n, err
}

// P3: a process that is stopped while it reads the answer of a claim does not keep its
// groups: the server hangs up on it, and the claim has not taken place.
func TestStoppedInTheAnswer(t *testing.T) {
	t.Parallel()
	b := openShared(t)
	q := newQueue(t, b)
	for i := range 7 {
		req := q.jobs(fmt.Sprint("g", i), fmt.Sprint(i))
		req.Jobs[0].Payload = make([]byte, 1<<20)
		q.stored(b.Publish(t.Context(), req))
	}
	config, err := pgxpool.ParseConfig(testserver.SharedPostgres(t).URL() + "&pool_max_conns=1")
	check(t, err)
	var stop atomic.Bool
	end := make(chan struct{})
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &stalling{Conn: c, stop: &stop, end: end}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	check(t, err)
	defer pool.Close()
	stopped, err := New(t.Context(), pool, Options{Notify: NotifyOff})
	check(t, err)
	stop.Store(true)
	done := make(chan error, 1)
	go func() {
		_, err := stopped.Claim(context.Background(), core.ClaimRequest{Queue: q.name, Max: 7, Lease: time.Second, Owner: "stopped"})
		done <- err
	}()
	eventually(t, "the server waits to be read from", func() (waits bool) {
		check(t, b.pool.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'ClientWrite' AND query LIKE '%claim%'`).Scan(&waits))
		return waits
	})
	q.wantNothing()
	start, found := time.Now(), 0
	eventually(t, "the groups are found again", func() bool {
		found += len(q.claim(7))
		return found == 7
	})
	t.Logf("found after %v", time.Since(start))
	close(end)
	wantError(t, <-done, core.ErrUnavailable, "claim")
	check(t, stopped.Close())
}
