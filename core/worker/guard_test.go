package worker_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// trap is an error of which the named methods panic.
type trap struct{ as, is, text bool }

func (e trap) Error() string {
	if e.text {
		panic("no text")
	}
	return "trap"
}

func (e trap) As(any) bool {
	if e.as {
		panic("no as")
	}
	return false
}

func (e trap) Is(error) bool {
	if e.is {
		panic("no is")
	}
	return false
}

// text is a buffer that many may write.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *text) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *text) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// What the program gave panics outside a handler: the process lives, the job is
// settled, the slot is free and the log has the stack.
func TestPanicsOutsideTheHandler(t *testing.T) {
	seven := worker.Constant(7 * time.Second)
	fails := func(err error) handle { return func(context.Context, *worker.Task) error { return err } }
	for name, tc := range map[string]struct {
		handler  handle
		retry    worker.RetryPolicy
		observer worker.Observer
		want     core.Outcome // Delay -1: that of the default policy
		log      string
	}{
		"retry policy": {handler: fails(errBoom), retry: func(*core.Job, error) time.Duration { panic("policy") },
			want: core.Outcome{Action: core.Retry, Delay: -1, Error: "boom"}, log: "panic: policy"},
		"retry policy that reads a bad error": {handler: fails(trap{text: true}),
			retry: func(_ *core.Job, err error) time.Duration { return time.Duration(len(err.Error())) },
			want:  core.Outcome{Action: core.Retry, Delay: -1, Error: "a worker_test.trap whose text can not be had"}, log: "panic: no text"},
		"As":    {handler: fails(trap{as: true}), want: core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "trap"}, log: "panic: no as"},
		"Error": {handler: fails(trap{text: true}), want: core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "a worker_test.trap whose text can not be had"}},
		"Is": {handler: fails(worker.CancelJob(trap{is: true})),
			want: core.Outcome{Action: core.Cancel, Error: "trap"}, log: "panic: no is"},
		"observer of claims": {handler: nothing, observer: worker.Observer{Claimed: func(string, int, time.Duration) { panic("observer") }},
			want: core.Outcome{Action: core.Complete}, log: "panic: observer"},
		"observer of settlements": {handler: nothing, observer: worker.Observer{Settled: func(worker.Settlement) { panic("observer") }},
			want: core.Outcome{Action: core.Complete}, log: "panic: observer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.retry == nil {
					tc.retry = seven
				}
				var log text
				f := &fake{}
				f.add("g", &core.Job{ID: "j"})
				w := start(t, f, worker.Config{Handler: tc.handler, Retry: tc.retry, Observer: tc.observer, Concurrency: 1,
					Logger: slog.New(slog.NewTextHandler(&log, nil))})
				synctest.Wait()
				got := f.last(t)
				if tc.want.Delay == -1 { // the upper half of the first step
					if got.Delay < worker.DefaultRetryMin/2 || got.Delay > worker.DefaultRetryMin {
						t.Errorf("delay %v is not the default one", got.Delay)
					}
					got.Delay = -1
				}
				if got.Action != tc.want.Action || got.Delay != tc.want.Delay || got.Error != tc.want.Error {
					t.Errorf("settled with %v %v %q, want %v %v %q", got.Action, got.Delay, got.Error, tc.want.Action, tc.want.Delay, tc.want.Error)
				}
				if s := w.Stats(); s.Running != 0 || s.Unsettled != 0 {
					t.Errorf("%+v", s)
				}
				stop(t, w)
				if out := log.String(); tc.log != "" && (!strings.Contains(out, tc.log) || !strings.Contains(out, "guard_test.go")) {
					t.Errorf("the log lacks %q or the stack: %s", tc.log, out)
				}
			})
		})
	}
}

func TestAPanickingObserverOfLostLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{})
		w := start(t, f, worker.Config{
			Observer: worker.Observer{LeaseLost: func(*core.Job) { panic("observer") }},
			Handler: handle(func(ctx context.Context, _ *worker.Task) error {
				<-ctx.Done()
				return nil
			}),
		})
		pass(time.Second)
		f.steal("g")
		pass(time.Minute)
		if s := w.Stats(); s.LeasesLost != 1 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}
