package rotapostgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	// cancelPatience is how long a call whose context has ended waits for the server
	// to say that it was cancelled.
	cancelPatience = time.Second
	// cancelAnswer is how long the answer to the cancel request itself is waited for. Who hangs up
	// before that ends a PgBouncer of Debian 12.
	cancelAnswer = 5 * time.Second
	// cancelLinger is how long after a cancel request it may still reach the session,
	// where it must not meet the next statement.
	cancelLinger = 100 * time.Millisecond
)

// canceller makes the end of a call's context cancel the statement, and keeps the
// connection. The driver's own way is to break the connection, and under load the
// next call, on a new connection that has everything to plan, would then be too
// late as well.
//
// The driver has such a handler too (CancelRequestContextWatcherHandler), but that
// one hangs up on its cancel request when the statement ends by itself meanwhile,
// and a PgBouncer of Debian 12 dies of that.
type canceller struct {
	conn     *pgconn.PgConn
	requests *sync.WaitGroup
	deadline time.Time     // of the connection, once the context has ended
	done     chan struct{} // closed when the request can reach no statement any more
}

// cancelRequests makes the cancellers of connections. Whoever closes these waits for the
// requests that are under way.
func cancelRequests(requests *sync.WaitGroup) func(conn *pgconn.PgConn) ctxwatch.Handler {
	return func(conn *pgconn.PgConn) ctxwatch.Handler { return &canceller{conn: conn, requests: requests} }
}

// HandleCancel is called when the context of a call ends.
func (c *canceller) HandleCancel(context.Context) {
	done := make(chan struct{})
	c.done, c.deadline = done, time.Now().Add(cancelPatience)
	_ = c.conn.Conn().SetDeadline(c.deadline) // fails only on a closed connection
	c.requests.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), cancelAnswer)
		defer cancel()
		// If it is not heard, the deadline breaks the connection.
		_ = c.conn.CancelRequest(ctx)
		time.Sleep(cancelLinger)
	})
}

// HandleUnwatchAfterCancel is called when that call has come back.
func (c *canceller) HandleUnwatchAfterCancel() {
	timer := time.NewTimer(time.Until(c.deadline) + cancelLinger)
	defer timer.Stop()
	select {
	case <-c.done:
		_ = c.conn.Conn().SetDeadline(time.Time{}) // fails only on a closed connection
	case <-timer.C: // the request may still meet the next statement: there is none
		_ = c.conn.Conn().Close()
	}
}
