package rotaredis

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// open opens a backend that is closed when the test ends.
func open(t testing.TB, url string, opts Options) *Backend {
	t.Helper()
	b, err := Open(context.Background(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func openShared(t testing.TB) *Backend {
	t.Helper()
	return open(t, testserver.SharedRedis(t).URL(), Options{})
}

// logged is a logger whose text can be read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// put publishes one job.
func put(t testing.TB, b core.Producer, job core.NewJob) core.PublishResult {
	t.Helper()
	return must[core.PublishResult](t)(core.Publish(context.Background(), b, job))
}

// take claims exactly one job.
func take(t testing.TB, b core.Leaser, queue string) core.Lease {
	t.Helper()
	res := must[core.ClaimResult](t)(b.Claim(context.Background(), core.ClaimRequest{Queue: queue, Max: 1, Lease: time.Minute, Owner: "test"}))
	if len(res.Leases) != 1 {
		t.Fatalf("claimed %d leases, want 1", len(res.Leases))
	}
	return res.Leases[0]
}

// settle settles one lease.
func settle(t testing.TB, b core.Leaser, l core.Lease, o core.Outcome) core.SettleResult {
	t.Helper()
	o.Lease = l.LeaseRef
	res, err := b.Settle(context.Background(), l.Queue, []core.Outcome{o})
	if err != nil {
		t.Fatal(err)
	}
	return res[0]
}

// counts gives the number of jobs by state.
func counts(t testing.TB, b core.Inspector, queue string) map[core.State]int64 {
	t.Helper()
	return must[core.QueueInfo](t)(b.QueueInfo(context.Background(), queue)).Jobs
}
