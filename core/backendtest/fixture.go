package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

const (
	// testTimeout ends a test that is stuck.
	testTimeout = 90 * time.Second
	// stormTimeout is for a storm, which does more.
	stormTimeout = 5 * time.Minute
	// patience is how long a test waits for what must happen soon.
	// It is long, as a test machine may do many things at once.
	patience = 30 * time.Second
	// hour is a lease or delay that does not run out during a test.
	hour = time.Hour
	// brief is a lease or delay that a test means to let run out, but not before
	// its next few calls: long enough for a machine that is busy with other things.
	brief = 400 * time.Millisecond
	// owner is the name of the worker in claims.
	owner = "suite-worker"
)

// runTag tells this run's queues from those of others on the same store.
var (
	runTag  = rand.Uint32()
	counter atomic.Int64
)

// uniqueName makes a name no other test uses, for queues, topics and spaces.
func uniqueName() string { return fmt.Sprintf("bt-%08x-%d", runTag, counter.Add(1)) }

// fixture is what a test has at hand: a handle on the store and a queue of its
// own. All its helpers fail the test when the backend answers an error.
type fixture struct {
	*testing.T
	h     Harness
	b     core.Backend
	ctx   context.Context
	queue string
	// watched: what unchanged is to find out is looked at further out.
	watched bool
}

func newFixture(t *testing.T, h Harness) *fixture {
	t.Helper()
	return newFixtureFor(t, h, testTimeout)
}

// newFixtureFor has a time after which the test is taken to be stuck.
func newFixtureFor(t *testing.T, h Harness, timeout time.Duration) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	f := &fixture{T: t, h: h, ctx: ctx}
	f.b = f.open()
	return f.otherQueue()
}

// open gives another handle on the same store.
func (f *fixture) open() core.Backend {
	f.Helper()
	b := f.h.Open(f.T)
	if b == nil {
		f.Fatal("Harness.Open gave no backend")
	}
	f.Cleanup(func() {
		if err := b.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	})
	return b
}

// otherHandle is the same queue seen through another handle.
func (f *fixture) otherHandle() *fixture {
	f.Helper()
	g := *f
	g.b = f.open()
	return &g
}

// otherQueue is a second queue on the same handle.
func (f *fixture) otherQueue() *fixture { return f.onQueue(uniqueName()) }

// onQueue is the named queue on the same handle; it is deleted in the end.
func (f *fixture) onQueue(name string) *fixture {
	g := *f
	g.queue = name
	f.Cleanup(func() {
		// The test may have deleted the queue or closed the backend.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), patience)
		defer cancel()
		_ = g.b.DeleteQueue(ctx, name, true)
	})
	return &g
}

// check fails the test on an error.
func (f *fixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// wantErr fails the test unless err matches want.
func (f *fixture) wantErr(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("got error %v, want %v", err, want)
	}
}

// equal fails the test unless got is want.
func equal[V any](f *fixture, what string, got, want V) {
	f.Helper()
	if !reflect.DeepEqual(got, want) {
		f.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// within fails the test unless at lies between from and to.
func (f *fixture) within(what string, at, from, to time.Time) {
	f.Helper()
	if at.Before(from) || at.After(to) {
		f.Fatalf("%s is %s, want between %s and %s", what, clock(at), clock(from), clock(to))
	}
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// now reads the store's clock.
func (f *fixture) now() time.Time {
	f.Helper()
	now, err := f.b.Now(f.ctx)
	f.check(err)
	return now
}

// passes waits until the store's clock has passed t.
func (f *fixture) passes(t time.Time) {
	f.Helper()
	for {
		left := t.Sub(f.now())
		if left < 0 {
			return
		}
		select {
		case <-f.ctx.Done():
			f.Fatalf("the store's clock did not reach %s", clock(t))
		case <-time.After(left + time.Millisecond):
		}
	}
}

// eventually waits until condition holds.
func (f *fixture) eventually(what string, condition func() bool) {
	f.Helper()
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("did not happen in %s: %s", patience, what)
		}
		time.Sleep(pause)
	}
}

// together runs n functions at once and fails the test on the first error.
func (f *fixture) together(n int, do func(i int) error) {
	f.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	f.check(errors.Join(errs...))
}

// names makes n names that sort like numbers: prefix000, prefix001 and so on.
func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return list
}
