package faultsuite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// workerSpec says what a worker process does until it is told to end.
type workerSpec struct {
	Queue       string
	Concurrency int
	Lease       time.Duration
	// MaxHandling, when set, lets leases of handlers that take longer run out.
	MaxHandling time.Duration
	// Handler is one of handlers; Handling is for mixed the longest time it adds.
	Handler  string
	Handling time.Duration
}

// handlers are what a worker process can do with a job, by name.
var handlers = map[string]func(*handling) error{
	"mixed":  (*handling).mixed,
	"prompt": (*handling).prompt,
	"plain":  (*handling).plain,
	"hold":   (*handling).hold,
	"zombie": (*handling).zombie,
	"poison": (*handling).poison,
}

func workerMain(c child, spec workerSpec) error {
	handle := handlers[spec.Handler]
	if handle == nil {
		return fmt.Errorf("no handler %q", spec.Handler)
	}
	backend := recorder{c.backend, c.log}
	w, err := worker.New(backend, worker.Config{
		Queues:         []worker.Queue{{Name: spec.Queue}},
		Concurrency:    spec.Concurrency,
		Lease:          spec.Lease,
		MaxHandling:    spec.MaxHandling,
		PollInterval:   100 * time.Millisecond,
		HighRatio:      0.5,
		HighThreshold:  2,
		StopTimeout:    5 * time.Second,
		ReleaseTimeout: 5 * time.Second,
		Retry:          func(*core.Job, error) time.Duration { return rand.N(30 * time.Millisecond) },
		Handler: worker.HandlerFunc(func(ctx context.Context, task *worker.Task) error {
			c.log.write(Event{
				Kind: Started, Done: now(), Job: task.Job.ID, Group: task.Job.Group,
				Token: task.Lease().Token, Fence: task.Fence, Attempt: task.Attempt(),
			})
			return handle(&handling{ctx, task, backend, c.log, spec})
		}),
	})
	if err != nil {
		return err
	}
	return w.Run(c.ctx)
}

// handling is one run of a handler.
type handling struct {
	ctx     context.Context
	task    *worker.Task
	backend worker.Backend
	log     *log
	spec    workerSpec
}

var errPlanned = errors.New("planned failure")

// mixed does anything a handler may do.
func (h *handling) mixed() error {
	long := 10 * time.Millisecond
	switch rand.N(100) {
	case 0:
		long = time.Second // more than a short lease
	case 1:
		time.Sleep(rand.N(time.Second)) // without a look at the context
	case 2, 3, 4, 5, 6:
		long = 100 * time.Millisecond
	}
	if rand.N(8) == 0 {
		h.save()
	}
	if err := h.work(rand.N(long + h.spec.Handling)); err != nil {
		return err
	}
	switch rand.N(20) {
	case 0, 1:
		return errPlanned
	case 2:
		return worker.Release()
	case 3:
		return worker.Snooze(rand.N(20 * time.Millisecond))
	case 4:
		return worker.DeadLetter(errPlanned)
	case 5:
		return worker.CancelJob(errPlanned)
	case 6:
		panic("planned panic")
	case 7:
		h.task.SetResult([]byte(resultOf(h.task.Job)))
	}
	return nil
}

// plain completes after a short time, or gives back, with nothing that waits.
func (h *handling) plain() error {
	if err := h.work(rand.N(10 * time.Millisecond)); err != nil {
		return err
	}
	if rand.N(10) == 0 {
		return worker.Release()
	}
	return nil
}

// prompt completes at once.
func (h *handling) prompt() error { return nil }

// hold keeps its group until its context ends.
func (h *handling) hold() error { return h.work(time.Hour) }

// poison ends the process when the job's id says so.
func (h *handling) poison() error {
	if h.task.Job.Kind == "poison" {
		os.Exit(1)
	}
	return nil
}

// zombie waits for the end of its context, and then tries everything that a
// holder may do.
func (h *handling) zombie() error {
	_ = h.work(time.Hour)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), storeTimeout)
	defer cancel()
	lease := h.task.Lease()
	h.note("save", h.backend.Save(ctx, lease, core.Patch{Result: []byte("zombie")}))
	ext, err := h.backend.Extend(ctx, lease.Queue, []core.LeaseRef{lease}, time.Minute)
	if err == nil {
		err = ext[0].Err
	}
	h.note("extend", err)
	for action := core.Complete; action <= core.Cancel; action++ {
		res, err := h.backend.Settle(ctx, lease.Queue, []core.Outcome{{Lease: lease, Action: action, Error: "zombie"}})
		if err == nil {
			err = res[0].Err
		}
		h.note(action.String(), err)
	}
	h.note("end", nil)
	return worker.AlreadySettled()
}

func (h *handling) note(text string, err error) {
	h.log.write(Event{Kind: Note, Done: now(), Job: h.task.Job.ID, Token: h.task.Lease().Token, Text: text, Err: errText(err)})
}

func (h *handling) save() {
	ctx, cancel := context.WithTimeout(h.ctx, storeTimeout)
	defer cancel()
	_ = h.task.SaveProgress(ctx, []byte(progressOf(h.task.Job))) // the recorder has its error
}

// work passes the time d. Should the context end meanwhile, it says why.
func (h *handling) work(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-h.ctx.Done():
	}
	cause := context.Cause(h.ctx)
	e := Event{Kind: Ended, Done: now(), Job: h.task.Job.ID, Token: h.task.Lease().Token, Err: errText(cause)}
	if !errors.Is(cause, core.ErrLeaseLost) && !errors.Is(cause, worker.ErrStopping) {
		e.Kind, e.Text = Bad, fmt.Sprintf("the context of job %s ended because of %v", h.task.Job.ID, cause)
	}
	h.log.write(e)
	return cause
}
