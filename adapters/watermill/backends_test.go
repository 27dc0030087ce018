package rotawatermill_test

import (
	"context"
	"testing"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"

	rotaredis "github.com/rota-queue/rota/backends/redis"
)

// testBackend is a store to run tests on.
type testBackend struct {
	name string
	open func(testing.TB) core.Backend
}

var testBackends = []testBackend{
	{"memory", func(t testing.TB) core.Backend { return newMemory(t) }},
	{"redis", func(t testing.TB) core.Backend { return newRedis(t) }},
}

// newRedis makes a backend on the shared Redis, closed after the test.
func newRedis(t testing.TB) *rotaredis.Backend {
	t.Helper()
	b, err := rotaredis.Open(context.Background(), testserver.SharedRedis(t).URL(), rotaredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close the backend: %v", err)
		}
	})
	return b
}

// eachBackend runs a test on every backend, with a topic that nothing else uses.
func eachBackend(t *testing.T, test func(t *testing.T, b core.Backend, topic string)) {
	for _, one := range testBackends {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			test(t, one.open(t), testserver.UniqueName(t))
		})
	}
}
