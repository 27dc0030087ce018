package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { Main(m, func() error { return goleak.Find() }) }

type fakeM int

func (m fakeM) Run() int { return int(m) }

func init() {
	RegisterChild("main-codes", func() {
		pass := func() error { return nil }
		leak := func() error { return errors.New("planted leak") }
		fmt.Println("all well", runMain(fakeM(0), []func() error{pass, pass}))
		fmt.Println("leak", runMain(fakeM(0), []func() error{pass, leak}))
		fmt.Println("tests failed", runMain(fakeM(7), []func() error{leak}))
	})
}

func init() {
	RegisterChild("leak-check", func() {
		p, err := newRedisProcess(os.Getenv("DIR"), config{}, 0)
		if err != nil {
			panic(err)
		}
		fmt.Println("ignoring the owner", goleak.Find(goleak.IgnoreAnyFunction(OwnerFunction)) == nil)
		fmt.Println("not ignoring it", goleak.Find() == nil)
		if err := p.close(); err != nil {
			panic(err)
		}
		fmt.Println("stopped", goleak.Find() == nil)
	})
}

func TestOwnerFunctionIsAllThatAServerLeavesRunning(t *testing.T) {
	t.Parallel()
	c := Child(t, "leak-check", "DIR="+t.TempDir())
	want := []string{"ignoring the owner true", "not ignoring it false", "stopped true"}
	if got := c.Rest(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMainPassesOnWhatFails(t *testing.T) {
	t.Parallel()
	c := Child(t, "main-codes")
	for _, want := range []string{"all well 0", "leak 1", "tests failed 7"} {
		if got, ok := c.Next(); !ok || got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// recorder takes the place of a test, to see that failures are reported.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	said     []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any)   { r.Fatalf("%s", fmt.Sprint(args...)) }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Helper()             {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool        { return len(r.errors()) > 0 }

func (r *recorder) errors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.said...)
}

// record runs f as a test with its cleanups and returns what it failed with.
func record(t *testing.T, f func(testing.TB)) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.errors()
}

// eventually waits until the condition holds.
func eventually(t *testing.T, ready func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := await(ctx, ready); err != nil {
		t.Fatal(err)
	}
}

// refuses is nil if nothing listens on addr.
func refuses(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil
	}
	_ = conn.Close()
	return fmt.Errorf("something listens on %s", addr)
}
