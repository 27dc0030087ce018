package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

var closedTests = []test{
	{"EveryMethod", testClosed},
	{"Twice", testClosedTwice},
	{"OthersGoOn", testOthersGoOn},
	{"WhileInUse", testCloseInUse},
	{"ContextCancelled", testContextCancelled},
	{"ContextDeadline", testContextDeadline},
	{"ContextEndsLater", testContextEndsLater},
}

func testClosed(f *fixture) {
	f.add("g", "a")
	f.check(f.b.Close())
	for _, c := range slices.Concat(queueCalls, otherCalls) {
		if err := c.do(f.ctx, f.b, f.queue); !errors.Is(err, core.ErrClosed) {
			f.Errorf("%s: got error %v, want ErrClosed", c.name, err)
		}
	}
	if f.b.Capabilities().Name == "" {
		f.Error("a closed backend has forgotten its capabilities")
	}
}

func testClosedTwice(f *fixture) {
	for range 3 {
		f.check(f.b.Close())
	}
	f.together(4, func(int) error { return f.b.Close() })
}

func testOthersGoOn(f *fixture) {
	other := f.otherHandle()
	other.add("g", "a", "b")
	l := other.claim("a")
	f.check(other.b.Close())
	f.check(f.extend(l, hour).Err) // a lease is no handle's
	f.complete(l)
	f.wantServed("b")
}

// A backend may be closed while it is used: calls end well, or say that it is
// closed.
func testCloseInUse(f *fixture) {
	var started sync.WaitGroup
	const users = 4
	started.Add(users)
	f.together(users+1, func(i int) error {
		if i == users {
			started.Wait()
			return f.b.Close()
		}
		for n := 0; ; n++ {
			_, err := core.Publish(f.ctx, f.b, core.NewJob{Queue: f.queue, Group: fmt.Sprint("g", i)})
			if n == 5 {
				started.Done()
			}
			if errors.Is(err, core.ErrClosed) && n > 5 {
				return nil
			}
			if err != nil && !errors.Is(err, core.ErrUnavailable) {
				return err
			}
		}
	})
}

// Nothing is done with a context that has ended.
func testContextCancelled(f *fixture) {
	f.configure(core.QueueConfig{})
	f.add("g", "a")
	f.add("", "b")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	f.unchanged("a call with a cancelled context", func() {
		for _, c := range slices.Concat(queueCalls, otherCalls) {
			start := time.Now()
			if err := c.do(ctx, f.b, f.queue); !errors.Is(err, context.Canceled) {
				f.Errorf("%s: got error %v, want context.Canceled", c.name, err)
			}
			if took := time.Since(start); took > time.Second {
				f.Errorf("%s took %s with a cancelled context", c.name, took)
			}
		}
	})
}

func testContextDeadline(f *fixture) {
	f.add("g", "a")
	ctx, cancel := context.WithDeadline(f.ctx, time.Now().Add(-time.Second))
	defer cancel()
	f.unchanged("a call that is too late", func() {
		for _, c := range slices.Concat(queueCalls, otherCalls) {
			if err := c.do(ctx, f.b, f.queue); !errors.Is(err, context.DeadlineExceeded) {
				f.Errorf("%s: got error %v, want context.DeadlineExceeded", c.name, err)
			}
		}
	})
}

// A context that ends after a call does not undo it or hurt the next.
func testContextEndsLater(f *fixture) {
	for _, id := range names("j", 20) {
		ctx, cancel := context.WithCancel(f.ctx)
		_, err := core.Publish(ctx, f.b, core.NewJob{Queue: f.queue, Group: "g", ID: id})
		f.check(err)
		cancel()
	}
	f.wantServed(names("j", 20)...)
}
