package rotaredis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// idle makes a worker of the queue known to wait.
func idle(t *testing.T, b *Backend, queue string) {
	t.Helper()
	must[core.ClaimResult](t)(b.Claim(context.Background(), core.ClaimRequest{Queue: queue, Max: 1, Lease: time.Minute}))
}

func wantWake(t *testing.T, wakes <-chan core.Wake, want core.Wake) {
	t.Helper()
	select {
	case got := <-wakes:
		if got != want {
			t.Fatalf("got hint %+v, want %+v", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no hint %+v", want)
	}
}

// However many subscriptions there are, they share one connection, which ends
// with the last of them.
func TestWakesShareConnection(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	subscribers := func() int64 {
		n := int64(0)
		for _, line := range must[[]string](t)(server.Client(t).PubSubChannels(context.Background(), "*").Result()) {
			n += must[map[string]int64](t)(server.Client(t).PubSubNumSub(context.Background(), line).Result())[line]
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all []<-chan core.Wake
	for i := range 10 {
		queues := []string{"all", fmt.Sprint("q", i%5)}
		all = append(all, must[<-chan core.Wake](t)(b.Wakes(ctx, queues...)))
	}
	if n := subscribers(); n != 6 { // one connection on six channels
		t.Errorf("the server has %d subscriptions, want 6", n)
	}
	idle(t, b, "all")
	put(t, b, core.NewJob{Queue: "all"})
	for _, wakes := range all {
		wantWake(t, wakes, core.Wake{Kind: core.WakeReady, Queue: "all"})
	}
	cancel()
	for _, wakes := range all {
		for range wakes { //nolint:revive // until it is closed
		}
	}
	for deadline := time.Now().Add(10 * time.Second); subscribers() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server still has subscriptions")
		}
	}
	// It starts again when somebody listens again.
	wakes := must[<-chan core.Wake](t)(b.Wakes(t.Context(), "q1"))
	idle(t, b, "q1")
	put(t, b, core.NewJob{Queue: "q1"})
	wantWake(t, wakes, core.Wake{Kind: core.WakeReady, Queue: "q1"})
}

// Hints that were lost with a connection are made up for.
func TestWakesReconnect(t *testing.T) {
	server := testserver.Redis(t)
	proxy := testserver.NewProxy(t, server.Addr(), testserver.RESP)
	b := open(t, "redis://"+proxy.Addr(), Options{})
	direct := open(t, server.URL(), Options{})
	wakes := must[<-chan core.Wake](t)(b.Wakes(t.Context(), "q"))
	idle(t, direct, "q")
	proxy.Refuse()
	proxy.CutAll()
	put(t, direct, core.NewJob{Queue: "q"})
	proxy.Resume()
	wantWake(t, wakes, core.Wake{Kind: core.WakeReady, Queue: "q"})
	idle(t, direct, "q")
	idle(t, direct, "q")
	put(t, direct, core.NewJob{Queue: "q"})
	wantWake(t, wakes, core.Wake{Kind: core.WakeReady, Queue: "q"})
}

// A server that is killed takes the connection with it, not the subscription.
func TestWakesServerRestart(t *testing.T) {
	server := testserver.Redis(t, testserver.AOF())
	b := open(t, server.URL(), Options{})
	wakes := must[<-chan core.Wake](t)(b.Wakes(t.Context(), "q"))
	server.Kill()
	server.Restart()
	wantWake(t, wakes, core.Wake{Kind: core.WakeReady, Queue: "q"})
	idle(t, b, "q")
	put(t, b, core.NewJob{Queue: "q"})
	wantWake(t, wakes, core.Wake{Kind: core.WakeReady, Queue: "q"})
}

// Wakes that can not be confirmed end with their context.
func TestWakesUnreachable(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.Wakes(ctx, "q"); err == nil {
		t.Error("Wakes succeeded without a server")
	}
}

// A reader who does not read loses WakeReady only when one is waiting already.
func TestSlowReader(t *testing.T) {
	s := newSubscription()
	for i := range 3 {
		s.put(core.Wake{Kind: core.WakeReady, Queue: "a"})
		s.put(core.Wake{Kind: core.WakeReady, Queue: "b"})
		s.put(core.Wake{Kind: core.WakeCancel, Queue: "a", JobID: fmt.Sprint(i)})
	}
	var got []core.Wake
	for w, ok := s.take(); ok; w, ok = s.take() {
		got = append(got, w)
	}
	if len(got) != 5 {
		t.Errorf("got %v", got)
	}
	for i := range maxWaiting + 5 {
		s.put(core.Wake{Kind: core.WakeFinished, Queue: "a", JobID: fmt.Sprint(i)})
	}
	if w, _ := s.take(); w.JobID != "5" {
		t.Errorf("the oldest hint that waits is %+v", w)
	}
}
