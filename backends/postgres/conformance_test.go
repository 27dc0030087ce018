package rotapostgres

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/backendtest"
	"github.com/rota-queue/rota/internal/testserver"
)

func harness(open func(t testing.TB) *Backend) backendtest.Harness {
	return backendtest.Harness{Open: func(t testing.TB) core.Backend { return open(t) }}
}

// shared opens the shared server; the suite closes what it opens.
func shared(t testing.TB) *Backend {
	t.Helper()
	b, err := Open(t.Context(), testserver.SharedPostgres(t).URL()+"&pool_max_conns=6", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pooled gives handles on one pool, which closes with t. The tests of the suite do
// little each: on connections of their own most of their time would go into the
// first call of each function, which the server compiles and plans for every session.
func pooled(t *testing.T, url string, opts Options) backendtest.Harness {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	check(t, err)
	var requests sync.WaitGroup
	config.ConnConfig.BuildContextWatcherHandler = cancelRequests(&requests) // as Open does
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	check(t, err)
	t.Cleanup(func() {
		pool.Close()
		requests.Wait()
	})
	return harness(func(t testing.TB) *Backend {
		b, err := New(context.Background(), pool, opts)
		check(t, err)
		return b
	})
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, pooled(t, testserver.SharedPostgres(t).URL()+"&pool_max_conns=12", Options{}))
}

func TestStorms(t *testing.T) { backendtest.RunStorms(t, harness(shared)) }

func TestModel(t *testing.T) {
	backendtest.RunModel(t, harness(shared), func(testing.TB) core.Backend { return memory.New(memory.Options{}) })
}
