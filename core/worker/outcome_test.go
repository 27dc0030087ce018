package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

var errBoom = errors.New("boom")

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestWhatAHandlerReturnsChoosesTheOutcome(t *testing.T) {
	constant := worker.Constant(7 * time.Second)
	for name, tc := range map[string]struct {
		handler handle
		want    core.Outcome
		trace   string
	}{
		"nil completes": {nothing, core.Outcome{Action: core.Complete}, ""},
		"an error is retried by the policy": {
			func(context.Context, *worker.Task) error { return errBoom },
			core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "boom"}, "",
		},
		"RetryAfter sets the delay": {
			func(context.Context, *worker.Task) error {
				return fmt.Errorf("outside: %w", worker.RetryAfter(time.Minute, errBoom))
			},
			core.Outcome{Action: core.Retry, Delay: time.Minute, Error: "outside: boom"}, "",
		},
		"a negative delay is none": {
			func(context.Context, *worker.Task) error { return worker.RetryAfter(-time.Minute, nil) },
			core.Outcome{Action: core.Retry, Error: "the handler chose: retry"}, "",
		},
		"Snooze": {
			func(context.Context, *worker.Task) error { return fmt.Errorf("later: %w", worker.Snooze(time.Hour)) },
			core.Outcome{Action: core.Snooze, Delay: time.Hour}, "",
		},
		"Release": {
			func(context.Context, *worker.Task) error { return worker.Release() },
			core.Outcome{Action: core.Release}, "",
		},
		"DeadLetter": {
			func(context.Context, *worker.Task) error {
				return errors.Join(worker.DeadLetter(errBoom), errors.New("too"))
			},
			core.Outcome{Action: core.Dead, Error: "boom\ntoo"}, "",
		},
		"CancelJob": {
			func(context.Context, *worker.Task) error { return worker.CancelJob(errBoom) },
			core.Outcome{Action: core.Cancel, Error: "boom"}, "",
		},
		"CancelJob without a reason": {
			func(context.Context, *worker.Task) error { return worker.CancelJob(nil) },
			core.Outcome{Action: core.Cancel}, "",
		},
		"a panic is a failure with a stack": {
			func(context.Context, *worker.Task) error { panic(errBoom) },
			core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "panic: boom"}, "outcome_test.go",
		},
		"Goexit is a failure": {
			func(context.Context, *worker.Task) error { runtime.Goexit(); return nil },
			core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "handler ended its goroutine (runtime.Goexit)"}, "",
		},
		"an error that panics as it is read": {
			func(context.Context, *worker.Task) error { var e *nilError; return e },
			core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "a *worker_test.nilError whose text can not be had"}, "",
		},
		"a text that no store takes is made fit": {
			func(context.Context, *worker.Task) error { return errors.New("a\x00b\xff") },
			core.Outcome{Action: core.Retry, Delay: 7 * time.Second, Error: "a�b�"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{}
				f.add("g", &core.Job{ID: "j"})
				onlyOnce := handle(func(ctx context.Context, task *worker.Task) error {
					if task.Fence > 1 {
						return worker.Snooze(time.Hour)
					}
					return tc.handler(ctx, task)
				})
				w := start(t, f, worker.Config{Handler: onlyOnce, Retry: constant, Concurrency: 1})
				synctest.Wait()
				got := f.outcomes[0]
				if got.Action != tc.want.Action || got.Delay != tc.want.Delay || got.Error != tc.want.Error {
					t.Errorf("settled with %v %v %q, want %v %v %q", got.Action, got.Delay, got.Error, tc.want.Action, tc.want.Delay, tc.want.Error)
				}
				if !strings.Contains(got.Trace, tc.trace) || tc.trace == "" && got.Trace != "" {
					t.Errorf("trace %q, want one with %q", got.Trace, tc.trace)
				}
				if n := w.Stats().Running; n != 0 {
					t.Errorf("%d slots in use", n)
				}
				stop(t, w)
			})
		})
	}
}

func TestAHandlerThatSettledByItselfIsNotSettledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{ID: "1"}, &core.Job{ID: "2"})
		w := start(t, f, worker.Config{Handler: handle(func(_ context.Context, task *worker.Task) error {
			f.settle([]core.Outcome{{Lease: task.Lease(), Action: core.Complete}})
			return worker.AlreadySettled()
		})})
		start := time.Now()
		synctest.Wait()
		if got := fmt.Sprint(f.actions()); got != "[complete:1 complete:2]" {
			t.Errorf("settled %s", got)
		}
		if time.Since(start) > 0 {
			t.Error("the next job of the group had to wait for a poll")
		}
		stop(t, w)
		if s := w.Stats(); s.OutcomesLost != 0 || s.Completed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The heartbeat finds the lease gone that the handler has just settled itself:
// that is no loss of an outcome.
func TestAHandlerThatSettledByItselfBeforeAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{})
		w := start(t, f, worker.Config{Handler: handle(func(ctx context.Context, task *worker.Task) error {
			f.settle([]core.Outcome{{Lease: task.Lease(), Action: core.Complete}})
			<-ctx.Done()
			return worker.AlreadySettled()
		})})
		pass(time.Minute)
		if s := w.Stats(); s.OutcomesLost != 0 || s.LeasesLost != 1 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
		stop(t, w)
	})
}

func TestResultAndHeadersGoWithTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("g", &core.Job{})
		var kept *worker.Task
		w := start(t, f, worker.Config{Handler: handle(func(ctx context.Context, task *worker.Task) error {
			if worker.FromContext(ctx) != task {
				t.Error("FromContext gives another task")
			}
			if err := task.SaveProgress(ctx, nil); err != nil {
				t.Error(err)
			}
			task.SetResult([]byte("done"))
			task.SetHeader("k", "v")
			kept = task
			return nil
		})})
		synctest.Wait()
		kept.SetResult([]byte("too late"))
		kept.SetHeader("k", "too late")
		p := f.last(t).Patch
		if string(p.Result) != "done" || p.SetHeaders["k"] != "v" {
			t.Errorf("patch %+v", p)
		}
		stop(t, w)
	})
}

func TestAnOutcomeTheStoreRefusesBecomesADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.addMany(7)
		f.add("", &core.Job{ID: "big"})
		f.addMany(7)
		w := start(t, f, worker.Config{Concurrency: 15, Handler: handle(func(_ context.Context, task *worker.Task) error {
			if task.Job.ID == "big" {
				task.SetResult(make([]byte, core.DefaultMaxPayload+1))
			}
			time.Sleep(time.Second) // so that all are settled together
			return nil
		})})
		pass(2 * time.Second)
		stop(t, w)
		if s := w.Stats(); s.Completed != 14 || s.Dead != 1 || s.OutcomesLost != 0 {
			t.Errorf("%+v", s)
		}
		for _, o := range f.outcomes {
			if o.Action == core.Dead && (o.Lease.JobID != "big" || !strings.Contains(o.Error, "longer than")) {
				t.Errorf("dead: %+v", o)
			}
		}
	})
}
