package memory_test

import (
	"sync"
	"testing"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/backendtest"
)

// handles gives each test a store of its own. All handles of a test are that one
// Backend, which is closed with the last of them.
type handles struct {
	mu     sync.Mutex
	stores map[testing.TB]*store
}

type store struct {
	*memory.Backend
	mu   sync.Mutex
	open int
}

type handle struct {
	*store
	once sync.Once
}

func (h *handles) Open(t testing.TB) core.Backend {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stores[t]
	if s == nil {
		s = &store{Backend: memory.New(memory.Options{})}
		h.stores[t] = s
		t.Cleanup(func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.stores, t)
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &handle{store: s}
}

func (h *handle) Close() (err error) {
	h.once.Do(func() {
		h.store.mu.Lock()
		defer h.store.mu.Unlock()
		if h.store.open--; h.store.open == 0 {
			err = h.store.Backend.Close()
		}
	})
	return err
}

func harness() backendtest.Harness {
	h := &handles{stores: map[testing.TB]*store{}}
	return backendtest.Harness{Open: h.Open}
}

func TestConformance(t *testing.T) { backendtest.Run(t, harness()) }

func TestModel(t *testing.T) { backendtest.RunModel(t, harness(), harness().Open) }

func TestStorms(t *testing.T) { backendtest.RunStorms(t, harness()) }
