package rotapostgres

import (
	"context"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/faultsuite"
	"github.com/rota-queue/rota/internal/testserver"
)

func init() { faultsuite.RegisterChildren("postgres", openForFaults) }

// openForFaults opens as a program would, with a pool as small as a worker's.
func openForFaults(ctx context.Context, url string) (core.Backend, error) {
	return Open(ctx, url+"&pool_max_conns=4", Options{})
}

// openUnprepared opens as behind PgBouncer: nothing is prepared, each call is one
// message.
func openUnprepared(ctx context.Context, url string) (core.Backend, error) {
	return Open(ctx, url+"&pool_max_conns=4&default_query_exec_mode=exec", Options{})
}

func TestFaults(t *testing.T) {
	faultsuite.Run(t, faultsuite.Store{
		Name:  "postgres",
		Start: func(t testing.TB) faultsuite.Server { return testserver.Postgres(t) },
		StartClock: func(t testing.TB, d time.Duration) faultsuite.ClockServer {
			return testserver.Postgres(t, testserver.ClockOffset(d))
		},
		Stalls:  true, // sql/time.sql: the clock stands still until the server's has caught up
		Open:    openForFaults,
		Clients: map[string]faultsuite.Opener{"Unprepared": openUnprepared},
		// A storm keeps a processor busy: more of them at once only take longer each,
		// and what goes on being published meanwhile is more work for all.
		AtOnce: 2,
		Split:  testserver.PostgreSQL,
	})
}
