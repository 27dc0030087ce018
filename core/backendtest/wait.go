package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/rota-queue/rota/core"
)

var waitTests = []test{
	{"Result", testWaitResult},
	{"FinishedBefore", testWaitFinished},
	{"EveryEnd", testWaitEnds},
	{"NotKept", testWaitNotKept},
	{"ContextEnds", testWaitContext},
	{"ManyWaiters", testManyWaiters},
	{"BackendCloses", testWaitClosed},
}

// finish completes the job with a result once somebody may be waiting for it.
func (f *fixture) finish(id, result string, action core.Action) {
	f.Helper()
	f.settle(f.claim(id), core.Outcome{Action: action, Patch: core.Patch{Result: []byte(result)}})
}

func testWaitResult(f *fixture) {
	for _, group := range []string{"g", ""} {
		id := "in" + group
		f.add(group, id)
		type answer struct {
			job *core.Job
			err error
		}
		got := make(chan answer, 1)
		waiter := f.open()
		go func() {
			job, err := core.Wait(f.ctx, waiter, f.queue, id)
			got <- answer{job, err}
		}()
		l := f.claim(id)
		f.passes(f.now().Add(brief)) // let it go to sleep
		start := time.Now()
		f.settle(l, core.Outcome{Action: core.Complete, Patch: core.Patch{Result: []byte("done")}})
		select {
		case a := <-got:
			f.check(a.err)
			equal(f, "state", a.job.State, core.StateCompleted)
			equal(f, "result", string(a.job.Result), "done")
			f.Logf("Wait returned %s after the settle", time.Since(start))
		case <-time.After(patience):
			f.Fatal("Wait did not return")
		}
	}
}

func testWaitFinished(f *fixture) {
	f.add("g", "a")
	f.finish("a", "r", core.Complete)
	job, err := core.Wait(f.ctx, f.b, f.queue, "a")
	f.check(err)
	equal(f, "result", string(job.Result), "r")
}

func testWaitEnds(f *fixture) {
	for action, state := range map[core.Action]core.State{core.Dead: core.StateDead, core.Cancel: core.StateCancelled} {
		f.add("g", action.String())
		f.finish(action.String(), "r", action)
		job, err := core.Wait(f.ctx, f.b, f.queue, action.String())
		f.check(err)
		equal(f, "state", job.State, state)
	}
	f.add("g", "moved")
	f.move(core.StateCancelled, "moved")
	job, err := core.Wait(f.ctx, f.b, f.queue, "moved")
	f.check(err)
	equal(f, "state", job.State, core.StateCancelled)
}

func testWaitNotKept(f *fixture) {
	_, err := core.Wait(f.ctx, f.b, f.queue, "nobody")
	f.wantErr(err, core.ErrNotFound)
	f.add("g", "a")
	got := make(chan error, 1)
	go func() {
		_, err := core.Wait(f.ctx, f.b, f.queue, "a")
		got <- err
	}()
	f.complete(f.claim("a"))
	select {
	case err := <-got:
		f.wantErr(err, core.ErrNotFound)
	case <-time.After(patience):
		f.Fatal("Wait did not return")
	}
}

func testWaitContext(f *fixture) {
	f.add("g", "a")
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(f.ctx, brief, cause)
	defer cancel()
	_, err := core.Wait(ctx, f.b, f.queue, "a")
	f.wantErr(err, cause)
	f.wantState("a", core.StatePending)
}

func testManyWaiters(f *fixture) {
	ids := names("j", 10)
	for _, id := range ids {
		f.add(id, id)
	}
	handles := []core.Backend{f.b, f.open()}
	f.together(len(ids)+1, func(i int) error {
		if i == len(ids) {
			for _, id := range ids {
				f.finish(id, "result of "+id, core.Complete)
			}
			return nil
		}
		job, err := core.Wait(f.ctx, handles[i%2], f.queue, ids[i])
		if err == nil && string(job.Result) != "result of "+ids[i] {
			err = errors.New("job " + ids[i] + " has another's result")
		}
		return err
	})
}

func testWaitClosed(f *fixture) {
	f.add("g", "a")
	got := make(chan error, 1)
	go func() {
		_, err := core.Wait(f.ctx, f.b, f.queue, "a")
		got <- err
	}()
	f.passes(f.now().Add(core.MinLease))
	f.check(f.b.Close())
	select {
	case err := <-got:
		f.wantErr(err, core.ErrClosed)
	case <-time.After(patience):
		f.Fatal("Wait did not return")
	}
}
