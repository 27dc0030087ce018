package faultsuite

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rota-queue/rota/internal/testserver"
)

// Connections of working processes break at random commands, before and after
// them, and all at once, and are refused for a while.
func testConnectionsBreak(t *testing.T, store Store) {
	eachWay(t, func(t *testing.T, kept bool) {
		s := newStorm(t, store, store.Start(t), kept)
		proxy := testserver.NewProxy(t, s.server.Addr(), store.Split)
		s.url = via(t, s.url, proxy)
		for range 2 {
			s.addWorker(mixedWorker)
			s.addPublisher(stormPublish(kept))
		}
		s.awaitAtWork(0)
		for i := range 10 {
			for range 5 {
				proxy.CutBefore(1 + rand.N(50))
				proxy.CutAfter(1 + rand.N(50))
			}
			s.pass(150 * time.Millisecond)
			switch i % 5 {
			case 1:
				proxy.CutAll()
			case 3:
				proxy.Refuse()
				proxy.CutAll()
				s.pass(100 * time.Millisecond)
				proxy.Resume()
			}
		}
		proxy.Clear()
		s.awaitAtWork(now(), "last cut")
		s.settleDown()
		s.judge()
	})
}
