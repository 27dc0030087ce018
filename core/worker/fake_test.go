package worker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// fake is a small store for one queue, "q", whose calls a test can delay, break or
// forge by its hooks. do makes the honest call. It polls on purpose unless a test
// sends hints by itself.
type fake struct {
	onClaim  func(ctx context.Context, req core.ClaimRequest, do func() core.ClaimResult) (core.ClaimResult, error)
	onSettle func(ctx context.Context, o []core.Outcome, do func() []core.SettleResult) ([]core.SettleResult, error)
	onExtend func(ctx context.Context, l []core.LeaseRef, do func() []core.Extension) ([]core.Extension, error)
	onSave   func(ctx context.Context, l core.LeaseRef) error
	onPurge  func(ctx context.Context) (int, error)
	wakes    chan core.Wake

	mu       sync.Mutex
	lanes    []*fakeLane
	tokens   int
	seq      int
	outcomes []core.Outcome // all that were accepted
	claims   []core.ClaimRequest
	purges   int
}

type fakeLane struct {
	group   string
	jobs    []*core.Job
	token   string
	until   time.Time
	dueAt   time.Time
	cancels bool
}

// add puts jobs into a group (each alone when it is empty).
func (f *fake) add(group string, jobs ...*core.Job) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range jobs {
		f.seq++
		if j.ID == "" {
			j.ID = fmt.Sprintf("job%d", f.seq)
		}
		j.Queue, j.Group = "q", group
		if j.MaxAttempts == 0 {
			j.MaxAttempts = 25
		}
		i := slices.IndexFunc(f.lanes, func(l *fakeLane) bool { return group != "" && l.group == group })
		if i < 0 {
			f.lanes = append(f.lanes, &fakeLane{group: group, jobs: []*core.Job{j}})
		} else {
			f.lanes[i].jobs = append(f.lanes[i].jobs, j)
		}
	}
}

// addMany adds n jobs without a group.
func (f *fake) addMany(n int) {
	for range n {
		f.add("", &core.Job{})
	}
}

func (f *fake) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	if err := req.Validate(); err != nil {
		return core.ClaimResult{}, err
	}
	f.mu.Lock()
	f.claims = append(f.claims, req)
	f.mu.Unlock()
	do := func() core.ClaimResult { return f.claim(req) }
	if f.onClaim != nil {
		return f.onClaim(ctx, req, do)
	}
	return do(), nil
}

func (f *fake) claim(req core.ClaimRequest) (res core.ClaimResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, l := range f.lanes {
		if len(res.Leases) == req.Max {
			return res
		}
		if len(l.jobs) == 0 || l.dueAt.After(now) || l.token != "" && l.until.After(now) {
			continue
		}
		f.tokens++
		job := l.jobs[0]
		job.Attempt++
		l.token, l.until = fmt.Sprint("token", f.tokens), now.Add(req.Lease)
		copied := *job
		res.Leases = append(res.Leases, core.Lease{
			LeaseRef: core.LeaseRef{Queue: "q", Group: l.group, JobID: job.ID, Token: l.token},
			Fence:    int64(f.tokens), Until: l.until, Job: &copied,
		})
	}
	return res
}

func (f *fake) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	if err := core.ValidateOutcomes(queue, outcomes, core.Limits{}); err != nil {
		return nil, err
	}
	do := func() []core.SettleResult { return f.settle(outcomes) }
	if f.onSettle != nil {
		return f.onSettle(ctx, outcomes, do)
	}
	return do(), nil
}

func (f *fake) settle(outcomes []core.Outcome) []core.SettleResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	results := make([]core.SettleResult, len(outcomes))
	for i, o := range outcomes {
		l := f.holder(o.Lease.Token)
		if l == nil {
			results[i].Err = core.ErrLeaseLost
			continue
		}
		l.token = ""
		l.dueAt = time.Now().Add(o.Delay)
		switch o.Action {
		case core.Complete, core.Dead, core.Cancel:
			l.jobs = l.jobs[1:]
			l.dueAt = time.Time{}
		case core.Release, core.Snooze:
			l.jobs[0].Attempt--
		}
		f.outcomes = append(f.outcomes, o)
		results[i].State = core.StateGone
	}
	f.lanes = slices.DeleteFunc(f.lanes, func(l *fakeLane) bool { return len(l.jobs) == 0 })
	return results
}

func (f *fake) holder(token string) *fakeLane {
	for _, l := range f.lanes {
		if token != "" && l.token == token {
			return l
		}
	}
	return nil
}

func (f *fake) Extend(ctx context.Context, queue string, refs []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	if err := core.ValidateExtend(queue, refs, lease); err != nil {
		return nil, err
	}
	do := func() []core.Extension {
		f.mu.Lock()
		defer f.mu.Unlock()
		results := make([]core.Extension, len(refs))
		for i, r := range refs {
			l := f.holder(r.Token)
			if l == nil {
				results[i].Err = core.ErrLeaseLost
				continue
			}
			l.until = time.Now().Add(lease)
			results[i] = core.Extension{Until: l.until, CancelRequested: l.cancels}
		}
		return results
	}
	if f.onExtend != nil {
		return f.onExtend(ctx, refs, do)
	}
	return do(), nil
}

func (f *fake) Save(ctx context.Context, l core.LeaseRef, p core.Patch) error {
	if f.onSave != nil {
		return f.onSave(ctx, l)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holder(l.Token) == nil {
		return core.ErrLeaseLost
	}
	return nil
}

func (f *fake) Purge(ctx context.Context, queue string, limit int) (int, error) {
	f.mu.Lock()
	f.purges++
	f.mu.Unlock()
	if f.onPurge != nil {
		return f.onPurge(ctx)
	}
	return 0, nil
}

func (f *fake) Wakes(ctx context.Context, queues ...string) (<-chan core.Wake, error) {
	if f.wakes == nil {
		return nil, core.ErrUnsupported
	}
	out := make(chan core.Wake, 16)
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case w := <-f.wakes:
				out <- w
			}
		}
	}()
	return out, nil
}

// steal lets the lease of a group run out as far as the store is concerned.
func (f *fake) steal(group string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lanes {
		if l.group == group {
			l.token = "stolen"
			l.until = time.Now().Add(time.Hour)
		}
	}
}

// cancel asks the holder of a job to cancel it.
func (f *fake) cancel(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lanes {
		if l.jobs[0].ID == id {
			l.cancels = true
		}
	}
}

// actions lists what was accepted, as action:job.
func (f *fake) actions() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.outcomes {
		names = append(names, o.Action.String()+":"+o.Lease.JobID)
	}
	return names
}

// last gives the last accepted outcome.
func (f *fake) last(t *testing.T) core.Outcome {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.outcomes) == 0 {
		t.Fatal("nothing was settled")
	}
	return f.outcomes[len(f.outcomes)-1]
}

func (f *fake) claimCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.claims)
}

// held counts leases that have not ended.
func (f *fake) held() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lanes {
		if l.token != "" && l.until.After(time.Now()) {
			n++
		}
	}
	return n
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// newWorker makes a worker of queue q with the values of cfg.
func newWorker(t testing.TB, b worker.Backend, cfg worker.Config) *worker.Worker {
	t.Helper()
	if cfg.Queues == nil {
		cfg.Queues = []worker.Queue{{Name: "q"}}
	}
	if cfg.Logger == nil {
		cfg.Logger = silent
	}
	w, err := worker.New(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// start starts a worker, which ends with the test if it has not been stopped.
func start(t testing.TB, b worker.Backend, cfg worker.Config) *worker.Worker {
	t.Helper()
	w := newWorker(t, b, cfg)
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func stop(t testing.TB, w *worker.Worker) {
	t.Helper()
	if err := w.Stop(context.Background()); err != nil {
		t.Fatalf("Stop: %v", err)
	}
}

// pass lets time go by in a bubble, and then everyone do what is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

type handle = worker.HandlerFunc

// nothing is a handler that succeeds.
var nothing = handle(func(context.Context, *worker.Task) error { return nil })
