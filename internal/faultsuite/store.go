package faultsuite

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// Opener opens the store that a URL names, as a program of a user would.
type Opener func(ctx context.Context, url string) (core.Backend, error)

// Server is a private server that lives until its test ends.
type Server interface {
	// URL names the server for Open, Addr is its host:port.
	URL() string
	Addr() string
	// Kill ends it with SIGKILL. Restart starts it again on the same address and
	// returns when it answers.
	Kill()
	Restart()
	// Freeze stops it where it is (SIGSTOP), Thaw lets it go on.
	Freeze()
	Thaw()
}

// ClockServer is a Server whose clock can be set.
type ClockServer interface {
	Server
	// SetClock makes the server's clock be off by d from everybody else's.
	SetClock(d time.Duration)
}

// Store describes one kind of server and how to reach it.
type Store struct {
	// Name as given to [RegisterChildren].
	Name string
	// Start starts a server that still has all it acknowledged after Kill and
	// Restart.
	Start func(t testing.TB) Server
	// StartClock is Start with a clock that is off by d; nil when the clock of
	// such a server can not be moved, and then the clock tests do not exist.
	StartClock func(t testing.TB, d time.Duration) ClockServer
	// Stalls: when the server's clock is set back, what waits for a time (a delay, a
	// lease of a dead worker) may wait until the clock is where it was. The store's
	// page says so. A store without it goes on at once.
	Stalls bool
	// Open opens the store as users do.
	Open Opener
	// Clients are further ways to open it, by name, for the tests that cut
	// connections: with all repetitions of the client library on, say.
	Clients map[string]Opener
	// Forget makes a server forget what clients have prepared on it, such as
	// scripts; nil when there is no such thing.
	Forget func(ctx context.Context, url string) error
	// AtOnce is how many tests run at the same time, for stores whose operations
	// take much of a processor; zero means the suite's own number.
	AtOnce int
	// Split makes the splitter of the store's protocol.
	Split func() testserver.Splitter
}

// via is the store's URL with the address of a proxy.
func via(t testing.TB, raw string, proxy *testserver.Proxy) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatalf("the server's URL: %v", err)
	}
	u.Host = proxy.Addr()
	return u.String()
}

// open opens the store; the handle is closed as the test ends.
func open(t testing.TB, opener Opener, url string) core.Backend {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, err := opener(ctx, url)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}
