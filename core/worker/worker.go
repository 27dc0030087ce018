package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
)

// Worker claims jobs of its queues and runs their handlers. Make it with [New],
// start it with Run or Start, end it with Stop. It can be started once. All
// methods are safe for concurrent use.
type Worker struct {
	backend Backend
	cfg     Config
	handler Handler // with the middleware around it
	queues  []*queue
	byName  map[string]*queue

	// maxOpen bounds the jobs that run or wait to be settled: outcomes must not
	// pile up when the store does not take them.
	maxOpen int
	slots   slots
	// open counts tasks that run or wait for a slot, unsettled outcomes on their
	// way. A task is always counted by one of them, so both are zero only when all
	// is done.
	open, unsettled atomic.Int64
	starting        atomic.Int64 // slots whose goroutines have not come to run yet
	abandoned       atomic.Int64 // outcomes given up because the worker ended
	count           counters

	// resting is what the claim loop waits for; roused wakes it.
	resting atomic.Int32
	roused  chan struct{}
	order   []*queue // memory of the claim loop
	purger  purger

	// base is the parent of the handlers' contexts: it never ends and has the
	// values of Start's context. ops ends when the worker has ended, and with it
	// all calls of the backend.
	base, ops context.Context
	endOps    context.CancelFunc
	given     context.Context // Start's own
	loops     sync.WaitGroup  // the claim loop and all that lives as long as the worker
	senders   sync.WaitGroup

	mu        sync.Mutex
	started   bool
	stopping  chan struct{} // closed when the worker is to stop
	hurry     chan struct{} // closed when it is to end handlers' contexts at once
	done      chan struct{} // closed when it has stopped
	progress  chan struct{} // something that Stop waits for has changed
	claimsRun atomic.Bool   // the claim loop has not ended
	closedErr error         // why the worker stopped by itself
	err       error         // what Stop answers, to be read after done
}

// New makes a worker. It answers an error that matches [core.ErrInvalid] when the
// backend is missing or the configuration breaks a rule. Nothing runs until Run or
// Start, and a worker that is not started need not be stopped.
func New(backend Backend, cfg Config) (*Worker, error) {
	if v := reflect.ValueOf(backend); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("worker: %w", core.Invalid("backend", nil, "is missing"))
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w := &Worker{
		backend: backend, cfg: cfg, handler: cfg.Handler,
		byName:   make(map[string]*queue, len(cfg.Queues)),
		maxOpen:  max(5*cfg.Concurrency, maxSettle),
		roused:   make(chan struct{}, 1),
		stopping: make(chan struct{}),
		hurry:    make(chan struct{}),
		done:     make(chan struct{}),
		progress: make(chan struct{}, 1),
	}
	w.slots.init(&cfg)
	w.purger = purger{next: make(chan *queue, 1), trouble: trouble{log: cfg.Logger, what: "purge"}}
	for i := len(cfg.Middleware) - 1; i >= 0; i-- {
		w.handler = cfg.Middleware[i](w.handler)
	}
	if isNil(w.handler) {
		return nil, fmt.Errorf("worker: %w", core.Invalid("middleware", nil, "made a nil handler"))
	}
	for _, c := range cfg.Queues {
		q := newQueue(w, c)
		w.queues = append(w.queues, q)
		w.byName[c.Name] = q
	}
	return w, nil
}

// Run starts the worker and blocks until it has stopped: because ctx ended or
// someone called Stop, or because the backend was closed. The handlers' contexts
// have the values of ctx but do not end with it; see the package comment for how a
// worker stops. It answers what Start or Stop would.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return err
	}
	<-w.done
	return w.err
}

// Start starts the worker and returns. The end of ctx stops it as Stop does, with
// nobody waiting; call Stop too to wait. A worker whose backend is closed stops by
// itself soon after: [Worker.Done] tells. Start answers an error that matches
// [core.ErrClosed] after Stop, and [core.ErrInvalid] the second time.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.isStopping():
		return fmt.Errorf("worker: start: %w", core.ErrClosed)
	case w.started:
		return fmt.Errorf("worker: %w", core.Invalid("worker", nil, "has been started before"))
	}
	w.started = true
	w.given, w.base = ctx, context.WithoutCancel(ctx)
	w.ops, w.endOps = context.WithCancel(w.base)
	now := time.Now()
	for _, q := range w.queues {
		q.purgeAt = now.Add(rand.N(purgeEvery))
		w.loops.Go(func() { q.heartbeats(w.ops) })
	}
	w.claimsRun.Store(true)
	w.loops.Go(w.claimLoop)
	w.loops.Go(func() { w.listen(w.ops) })
	w.loops.Go(func() { w.purger.work(w.ops, w.backend) })
	go w.supervise(ctx)
	return nil
}
