package rotapostgres

import (
	"testing"

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

func TestConformance(t *testing.T) { backendtest.Run(t, harness(shared)) }

func TestStorms(t *testing.T) { backendtest.RunStorms(t, harness(shared)) }

func TestModel(t *testing.T) {
	backendtest.RunModel(t, harness(shared), func(testing.TB) core.Backend { return memory.New(memory.Options{}) })
}
