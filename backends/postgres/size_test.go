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

// An answer has at most 8 MiB of jobs, or one job that is larger; the rest comes at once
// with the next claim, in turn, whether the groups have lanes yet or not.
func TestClaimOfLargeJobs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		sizes []int // of the jobs, in MiB
		want  []int // how many each claim gives
	}{
		{"of 3 MiB", []int{3, 3, 3, 3, 3}, []int{2, 2, 1}},
		{"first is larger", []int{9, 1, 1}, []int{1, 2}},
		{"second is larger", []int{1, 9, 1}, []int{1, 1, 1}},
		{"just fits", []int{4, 4}, []int{2}},
	} {
		for _, groups := range []string{"new", "known", "none", "tiers"} {
			t.Run(c.name+"/"+groups, func(t *testing.T) {
				t.Parallel()
				b := open(t, testserver.SharedPostgres(t).URL(), Options{Limits: core.Limits{MaxPayload: 10 << 20}})
				q := newQueue(t, b)
				for i, size := range c.sizes {
					group := fmt.Sprint("g", i)
					if groups == "none" {
						group = ""
					}
					var first []core.Lease
					if groups == "known" {
						q.publish(group, fmt.Sprint("first", i))
						first = q.claim(1)
					}
					req := q.jobs(group, fmt.Sprint(i))
					if groups == "tiers" { // each is looked for by itself
						req.Jobs[0].Priority = core.MaxPriority - i
					}
					req.Jobs[0].Payload = make([]byte, size<<20-1000)
					q.stored(b.Publish(t.Context(), req))
					if groups == "known" {
						q.complete(first...)
					}
				}
				at := 0
				for n, want := range c.want {
					res, err := b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 10, Lease: hour})
					check(t, err)
					equal(t, fmt.Sprintf("leases of claim %d", n+1), len(res.Leases), want)
					for _, l := range res.Leases {
						equal(t, "job", l.JobID, fmt.Sprint(at))
						equal(t, "size", len(l.Job.Payload), c.sizes[at]<<20-1000)
						at++
					}
					if at < len(c.sizes) && (res.Next == 0 || res.Next > time.Millisecond) {
						t.Fatalf("with jobs left, the next claim is to come in %v", res.Next)
					}
				}
				q.wantNothing()
			})
		}
	}
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
	time.Sleep(500 * time.Millisecond)
	q.wantNothing() // else the answer was small enough for the buffers on the way
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
