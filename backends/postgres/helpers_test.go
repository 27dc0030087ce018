package rotapostgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

const (
	hour     = time.Hour
	patience = 20 * time.Second
)

// open opens a backend that is closed when the test ends.
func open(t testing.TB, url string, opts Options) *Backend {
	t.Helper()
	b, err := Open(context.Background(), url, opts)
	check(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// openShared opens the shared server.
func openShared(t testing.TB) *Backend {
	t.Helper()
	return open(t, testserver.SharedPostgres(t).URL(), Options{})
}

// newDatabase makes an empty database on the shared server and gives its URL.
func newDatabase(t testing.TB) string {
	t.Helper()
	return testserver.SharedPostgres(t).NewDatabase(t)
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func newPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	check(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[V comparable](t testing.TB, what string, got, want V) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// wantError fails unless err is of the kind, has the text in it, and is one
// sentence on one line.
func wantError(t testing.TB, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	if !strings.Contains(err.Error(), text) {
		t.Fatalf("error %q lacks %q", err, text)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %q has several lines", err)
	}
}

// eventually waits until condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen in %v: %s", patience, what)
		}
	}
}

// queue is a queue of its own on a backend.
type queue struct {
	testing.TB
	b    *Backend
	name string
}

func newQueue(t testing.TB, b *Backend) queue { return queue{t, b, testserver.UniqueName(t)} }

// jobs makes jobs of a group, one for each id.
func (q queue) jobs(group string, ids ...string) core.PublishRequest {
	var req core.PublishRequest
	for _, id := range ids {
		req.Jobs = append(req.Jobs, core.NewJob{Queue: q.name, Group: group, ID: id})
	}
	return req
}

func (q queue) publish(group string, ids ...string) {
	q.Helper()
	q.stored(q.b.Publish(q.Context(), q.jobs(group, ids...)))
}

// stored fails unless all of a publish was stored.
func (q queue) stored(results []core.PublishResult, err error) {
	q.Helper()
	check(q, err)
	for _, r := range results {
		check(q, r.Err)
	}
}

// claim claims up to n groups.
func (q queue) claim(n int) []core.Lease {
	q.Helper()
	res, err := q.b.Claim(q.Context(), core.ClaimRequest{Queue: q.name, Max: n, Lease: hour, Owner: "test"})
	check(q, err)
	return res.Leases
}

// wantClaim claims one group, whose head must be this job.
func (q queue) wantClaim(id string) core.Lease {
	q.Helper()
	leases := q.claim(1)
	if len(leases) != 1 || leases[0].JobID != id {
		q.Fatalf("claimed %v, want job %q", leases, id)
	}
	return leases[0]
}

func (q queue) wantNothing() {
	q.Helper()
	if leases := q.claim(1); len(leases) > 0 {
		q.Fatalf("claimed job %q, want nothing", leases[0].JobID)
	}
}

func outcomes(action core.Action, leases ...core.Lease) []core.Outcome {
	list := make([]core.Outcome, len(leases))
	for i, l := range leases {
		list[i] = core.Outcome{Lease: l.LeaseRef, Action: action}
	}
	return list
}

func (q queue) complete(leases ...core.Lease) {
	q.Helper()
	res, err := q.b.Settle(q.Context(), q.name, outcomes(core.Complete, leases...))
	check(q, err)
	for _, r := range res {
		check(q, r.Err)
	}
}

func (q queue) state(id string) core.State {
	q.Helper()
	job, err := q.b.Job(q.Context(), q.name, id)
	if errors.Is(err, core.ErrNotFound) {
		return core.StateGone
	}
	check(q, err)
	return job.State
}
