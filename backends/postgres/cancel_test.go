package rotapostgres

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/internal/testserver"
)

// losing is a connection all of whose packets are lost, once it is told so.
type losing struct {
	net.Conn
	lost *atomic.Bool
}

func (l *losing) Write(p []byte) (int, error) {
	if l.lost.Load() {
		return len(p), nil
	}
	return l.Conn.Write(p)
}

// A call returns about a second after its context has ended, also when neither the server nor
// the request to cancel is heard of any more; the next one goes over another connection.
func TestCancelUnheard(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(testserver.SharedPostgres(t).URL() + "&pool_max_conns=1")
	check(t, err)
	var requests sync.WaitGroup
	defer requests.Wait()
	config.ConnConfig.BuildContextWatcherHandler = cancelRequests(&requests)
	var lost atomic.Bool
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		for lost.Load() {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &losing{conn, &lost}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	check(t, err)
	defer pool.Close()
	b, err := New(t.Context(), pool, Options{Notify: NotifyOff})
	check(t, err)
	defer func() { check(t, b.Close()) }()
	lost.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err = b.Now(ctx)
	wantError(t, err, context.DeadlineExceeded, "read the clock")
	if d := time.Since(start); d > cancelPatience+2*time.Second {
		t.Errorf("the call came back after %v", d)
	}
	lost.Store(false)
	newQueue(t, b).publish("g", "a")
}
