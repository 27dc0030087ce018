package faultsuite

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// The environment of a child.
const (
	envURL  = "ROTA_FAULT_URL"
	envSpec = "ROTA_FAULT_SPEC"
)

// RegisterChildren registers the worker and publisher processes of a store under
// its name. Call it once from an init function of the test package.
func RegisterChildren(store string, open Opener) {
	testserver.RegisterChild(store+"/worker", func() { childMain(open, workerMain) })
	testserver.RegisterChild(store+"/publisher", func() { childMain(open, publisherMain) })
}

// ready is the Text of a child's first Note: it can be asked to end.
const ready = "ready"

// child is what a child's main has.
type child struct {
	ctx     context.Context // ends with SIGTERM
	backend core.Backend
	log     *log
}

// childMain runs one child. It prints what went wrong and fails, so that the test
// fails.
func childMain[Spec any](open Opener, main func(child, Spec) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var spec Spec
	if err := json.Unmarshal([]byte(os.Getenv(envSpec)), &spec); err != nil {
		fail(err)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: withoutStack})))
	backend, err := insistOpen(ctx, open, os.Getenv(envURL))
	if err != nil {
		fail(err)
	}
	c := child{ctx, backend, &log{w: os.Stdout}}
	c.log.write(Event{Kind: Note, Done: now(), Text: ready})
	if err := main(c, spec); err != nil {
		fail(err)
	}
	if err := backend.Close(); err != nil {
		fail(err)
	}
}

// withoutStack drops the stacks of planned panics, which nobody reads.
func withoutStack(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "stack" {
		return slog.Attr{}
	}
	return a
}

// insistOpen opens the store, which may be down just now.
func insistOpen(ctx context.Context, open Opener, url string) (core.Backend, error) {
	for {
		b, err := open(ctx, url)
		if err == nil || ctx.Err() != nil {
			return b, err
		}
		slog.Info("child: open fails, will be tried again", "error", err)
		time.Sleep(20 * time.Millisecond)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "faultsuite:", err)
	os.Exit(1)
}

// startChild starts a child of the store with a spec.
func startChild(t testing.TB, store, role, url string, spec any) *testserver.ChildProcess {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return testserver.Child(t, store+"/"+role, envURL+"="+url, envSpec+"="+string(text))
}
