package worker_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

func TestNewRefusesWhatIsAgainstTheRules(t *testing.T) {
	q := []worker.Queue{{Name: "q"}}
	for name, c := range map[string]worker.Config{
		"handler":           {Queues: q},
		"middleware 0":      {Handler: nothing, Queues: q, Middleware: []worker.Middleware{nil}},
		"nil handler":       {Handler: nothing, Queues: q, Middleware: []worker.Middleware{func(worker.Handler) worker.Handler { return nil }}},
		"queues":            {Handler: nothing},
		"queue is empty":    {Handler: nothing, Queues: []worker.Queue{{}}},
		"twice":             {Handler: nothing, Queues: []worker.Queue{{Name: "q"}, {Name: "q", Weight: 2}}},
		"weight":            {Handler: nothing, Queues: []worker.Queue{{Name: "q", Weight: -1}}},
		"weight 1001":       {Handler: nothing, Queues: []worker.Queue{{Name: "q", Weight: 1001}}},
		"concurrency":       {Handler: nothing, Queues: q, Concurrency: -1},
		"lease":             {Handler: nothing, Queues: q, Lease: core.MinLease - 1},
		"heartbeat":         {Handler: nothing, Queues: q, Heartbeat: 16 * time.Second},
		"heartbeat -1":      {Handler: nothing, Queues: q, Heartbeat: -1},
		"poll interval":     {Handler: nothing, Queues: q, PollInterval: time.Microsecond},
		"high ratio":        {Handler: nothing, Queues: q, HighRatio: 1.1, HighThreshold: 1},
		"high ratio NaN":    {Handler: nothing, Queues: q, HighRatio: math.NaN(), HighThreshold: 1},
		"high threshold 5":  {Handler: nothing, Queues: q, HighRatio: 0.5, HighThreshold: 5},
		"high threshold -1": {Handler: nothing, Queues: q, HighThreshold: -1},
		"handler nil func":  {Handler: worker.HandlerFunc(nil), Queues: q},
		"handler nil mux":   {Handler: (*worker.Mux)(nil), Queues: q},
		"nil handler func":  {Handler: nothing, Queues: q, Middleware: []worker.Middleware{func(worker.Handler) worker.Handler { return worker.HandlerFunc(nil) }}},
		"handler nil typed": {Handler: worker.Typed[int](nil), Queues: q},
		"prefetch -2":       {Handler: nothing, Queues: q, Prefetch: -2},
		"prefetch 1001":     {Handler: nothing, Queues: q, Prefetch: core.MaxClaimBatch + 1},
		"timeout":           {Handler: nothing, Queues: q, Timeout: -1},
		"max handling":      {Handler: nothing, Queues: q, MaxHandling: -1},
		"stop timeout":      {Handler: nothing, Queues: q, StopTimeout: -2},
		"release timeout":   {Handler: nothing, Queues: q, ReleaseTimeout: -2},
		"owner":             {Handler: nothing, Queues: q, Owner: strings.Repeat("x", core.MaxOwnerLength+1)},
	} {
		w, err := worker.New(&fake{}, c)
		if !errors.Is(err, core.ErrInvalid) || w != nil {
			t.Errorf("%s: %v", name, err)
		} else if !strings.Contains(err.Error(), strings.Fields(name)[0]) {
			t.Errorf("%s: the error does not name it: %v", name, err)
		}
	}
	for _, b := range []worker.Backend{nil, (*fake)(nil)} {
		if _, err := worker.New(b, worker.Config{Handler: nothing, Queues: q}); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("nil backend of type %T: %v", b, err)
		}
	}
	if _, err := worker.New(&fake{}, worker.Config{Handler: nothing, Queues: q}); err != nil {
		t.Errorf("the zero values: %v", err)
	}
}

func TestMiddlewareWrapsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls []string
		say := func(name string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return handle(func(ctx context.Context, task *worker.Task) error {
					calls = append(calls, name)
					return next.Handle(ctx, task)
				})
			}
		}
		f := &fake{}
		f.addMany(1)
		w := start(t, f, worker.Config{Handler: nothing, Middleware: []worker.Middleware{say("outer"), say("inner")}})
		synctest.Wait()
		if got := strings.Join(calls, " "); got != "outer inner" {
			t.Error(got)
		}
		stop(t, w)
	})
}

func TestMuxChoosesByKind(t *testing.T) {
	var mux worker.Mux
	said := func(text string) worker.Handler {
		return handle(func(context.Context, *worker.Task) error { return errors.New(text) })
	}
	mux.On("mail", said("mail"))
	mux.OnFunc("", said("none").Handle)
	call := func(kind string) string {
		return mux.Handle(t.Context(), &worker.Task{Job: &core.Job{Kind: kind}}).Error()
	}
	if got := call("mail") + call("") + call("x"); got != `mailnoneno handler for jobs of kind "x"` {
		t.Error(got)
	}
	mux.Fallback(said("else"))
	if got := call("mail") + call("x"); got != "mailelse" {
		t.Error(got)
	}
	for _, f := range []func(){func() { mux.On("mail", nothing) }, func() { mux.On("new", nil) }, func() { mux.OnFunc("new", nil) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}

type upper struct{}

func (upper) Unmarshal(data []byte, v any) error {
	*v.(*string) = strings.ToUpper(string(data))
	return nil
}

func TestTypedDecodesThePayload(t *testing.T) {
	type mail struct{ To string }
	var got []string
	h := worker.Typed(func(_ context.Context, _ *worker.Task, m *mail) error { got = append(got, m.To); return nil })
	if err := h.Handle(t.Context(), &worker.Task{Job: &core.Job{Payload: []byte(`{"To":"a"}`)}}); err != nil {
		t.Error(err)
	}
	h = worker.TypedWith(upper{}, func(_ context.Context, _ *worker.Task, s string) error { got = append(got, s); return nil })
	if err := h.Handle(t.Context(), &worker.Task{Job: &core.Job{Payload: []byte(`b`)}}); err != nil {
		t.Error(err)
	}
	if strings.Join(got, " ") != "a B" {
		t.Error(got)
	}
}

func TestAnUndecodablePayloadIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.add("", &core.Job{Kind: "mail", Payload: []byte("{")})
		w := start(t, f, worker.Config{Handler: worker.Typed(func(context.Context, *worker.Task, int) error { return nil })})
		synctest.Wait()
		if o := f.last(t); o.Action != core.Dead || !strings.Contains(o.Error, `payload of job kind "mail" does not decode as int`) {
			t.Errorf("settled with %v %q", o.Action, o.Error)
		}
		stop(t, w)
	})
}

func TestRetryPolicies(t *testing.T) {
	at := func(p worker.RetryPolicy, attempt int) time.Duration { return p(&core.Job{Attempt: attempt}, errBoom) }
	p := worker.Exponential(time.Second, time.Hour)
	for attempt, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 13: time.Hour, 1 << 40: time.Hour} {
		var low, high int
		for range 300 {
			d := at(p, attempt)
			if d < most/2 || d > most {
				t.Fatalf("attempt %d waits %v, want %v to %v", attempt, d, most/2, most)
			}
			if d < most*3/4 {
				low++
			} else {
				high++
			}
		}
		if low < 90 || high < 90 {
			t.Errorf("attempt %d: jitter is uneven: %d low, %d high", attempt, low, high)
		}
	}
	if d := at(worker.Exponential(time.Hour, core.Forever), 100); d < core.Forever/2 {
		t.Errorf("overflow: %v", d)
	}
	if d := at(worker.Exponential(0, 0), 5); d != 0 {
		t.Errorf("zero: %v", d)
	}
	if at(worker.Constant(3), 9) != 3 {
		t.Error("constant")
	}
	steps := worker.Steps(1, 2, 3)
	if at(steps, 0) != 1 || at(steps, 1) != 1 || at(steps, 3) != 3 || at(steps, 50) != 3 || at(worker.Steps(), 3) != 0 {
		t.Error("steps")
	}
}

func TestATaskMadeByHand(t *testing.T) {
	task := &worker.Task{Job: &core.Job{Attempt: 3, MaxAttempts: 3}}
	ctx := worker.NewContext(t.Context(), task)
	if worker.FromContext(ctx) != task || worker.FromContext(t.Context()) != nil {
		t.Error("FromContext")
	}
	if err := task.SaveProgress(ctx, []byte("a")); err != nil || string(task.Job.Result) != "a" {
		t.Error("SaveProgress")
	}
	task.SetHeader("k", "v")
	if task.SetResult([]byte("b")); string(task.Job.Result) != "b" {
		t.Error("SetResult")
	}
	if !task.LeaseEnd().IsZero() || task.Stopping() != nil || !task.LastAttempt() || task.Lease() != (core.LeaseRef{}) {
		t.Error("accessors")
	}
}
