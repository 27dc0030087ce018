package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-queue/rota/core"
)

// Checker keeps an exact ledger of what publishers and workers were told, and
// finds each promise that was broken. Publish, claim, settle, extend and save
// through the backends that [Checker.Watch] gives; when all is done,
// [Checker.Check] reads what the store still holds and reports.
//
// It takes the store's word only for what the store accepted: a publish counts
// when it was acknowledged, a job is done when the settle that ended it was
// accepted, and a lease lasts from its claim to that settle or, when there is
// none, to the end the store gave it. Calls that answered an error are unknown:
// they prove nothing and excuse what they may have done.
//
// The ledger is about jobs that nobody moves: a job that a person cancels,
// deletes or redrives looks lost or doubled.
type Checker struct {
	mu     sync.Mutex
	start  time.Time
	jobs   map[jobName]*ledgerJob
	leases []*ledgerLease
	tokens map[string]*ledgerLease
}

type jobName struct{ queue, id string }

// span is the time from before a call was sent to after its answer came.
type span struct{ sent, returned time.Duration }

type ledgerJob struct {
	jobName
	group   string
	publish span
	acked   bool // else it is unknown whether it was stored
	seq     int64
	delayed bool // it stands aside at first: it may start after later ones
	left    bool // it may be unfinished in the end
}

// ledgerLease is one lease and all its holder did with it.
type ledgerLease struct {
	core.LeaseRef
	claim     span
	fence     int64
	attempt   int
	seq       int64
	max       int // attempts
	skips     bool
	claimedAt time.Time // store clock
	until     time.Time // store clock, as last extended
	writes    []ledgerWrite
}

// ledgerWrite is one write of a holder: a settle, or an extension or save.
type ledgerWrite struct {
	span
	name     string
	settles  bool
	accepted bool
	unknown  bool // it answered another error than ErrLeaseLost
	action   core.Action
	state    core.State // after a settle
}

// NewChecker makes an empty ledger.
func NewChecker() *Checker {
	return &Checker{start: time.Now(), jobs: map[jobName]*ledgerJob{}, tokens: map[string]*ledgerLease{}}
}

// Watch gives a backend that enters what goes through it into the ledger.
func (c *Checker) Watch(b core.Backend) core.Backend { return &watched{Backend: b, c: c} }

// Done counts the jobs whose end was accepted.
func (c *Checker) Done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := map[jobName]bool{}
	for _, l := range c.leases {
		if w := l.settled(); w != nil && final(w.state) {
			done[jobName{l.Queue, l.JobID}] = true
		}
	}
	return len(done)
}

// Refused counts the settles that answered ErrLeaseLost.
func (c *Checker) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, l := range c.leases {
		for _, w := range l.writes {
			if w.settles && !w.accepted && !w.unknown {
				n++
			}
		}
	}
	return n
}

// Check reads what the store holds of each queue in the ledger and reports all
// that broke a promise. Call it when nobody works any more and all that can be
// claimed has been.
func (c *Checker) Check(ctx context.Context, b core.Inspector) ([]Violation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	queues := map[string]bool{}
	for name := range c.jobs {
		queues[name.queue] = true
	}
	left := map[jobName]core.State{}
	for queue := range queues {
		for _, state := range core.JobStates() {
			jobs, err := listJobs(ctx, b, core.JobFilter{Queue: queue, State: state, Limit: core.MaxPage})
			if err != nil && !errors.Is(err, core.ErrNotFound) {
				return nil, fmt.Errorf("check queue %q: %w", queue, err)
			}
			for _, job := range jobs {
				left[jobName{queue, job.ID}] = job.State
			}
		}
	}
	return c.violations(left), nil
}

func (c *Checker) now() time.Duration { return time.Since(c.start) }

// watched is a backend whose calls go into a ledger.
type watched struct {
	core.Backend
	c *Checker
}

// Publish records who was stored, and who may have been.
func (w *watched) Publish(ctx context.Context, req core.PublishRequest) ([]core.PublishResult, error) {
	at := span{sent: w.c.now()}
	results, err := w.Backend.Publish(ctx, req)
	at.returned = w.c.now()
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for i, n := range req.Jobs {
		j := ledgerJob{group: n.Group, publish: at, delayed: n.Delay > 0 || !n.RunAt.IsZero()}
		switch {
		case err != nil && n.Queue != "" && n.ID != "":
			j.jobName = jobName{n.Queue, n.ID}
			w.c.addJob(j)
		case err == nil && results[i].Err == nil && !results[i].Existing:
			j.acked = true
			for _, queue := range results[i].Queues {
				j.jobName = jobName{queue, results[i].ID}
				if len(results[i].Queues) == 1 {
					j.seq = results[i].Seq
				}
				w.c.addJob(j)
			}
		}
	}
	return results, err
}

// addJob enters a publish. One that was tried again is one job.
func (c *Checker) addJob(j ledgerJob) {
	if old := c.jobs[j.jobName]; old != nil {
		j.publish.sent = old.publish.sent
		j.acked = j.acked || old.acked
	}
	c.jobs[j.jobName] = &j
}

// Claim records the leases that were given.
func (w *watched) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	at := span{sent: w.c.now()}
	res, err := w.Backend.Claim(ctx, req)
	at.returned = w.c.now()
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for _, l := range res.Leases {
		w.c.addLease(&ledgerLease{
			LeaseRef: l.LeaseRef, claim: at, fence: l.Fence, attempt: l.Job.Attempt, seq: l.Job.Seq,
			max: l.Job.MaxAttempts, skips: l.Job.OnFailure != core.Block, claimedAt: l.Job.ClaimedAt, until: l.Until,
		})
	}
	return res, err
}

func (c *Checker) addLease(l *ledgerLease) {
	c.leases = append(c.leases, l)
	if c.tokens[l.Token] == nil {
		c.tokens[l.Token] = l
	}
}

// Settle records which settles were accepted.
func (w *watched) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	at := span{sent: w.c.now()}
	results, err := w.Backend.Settle(ctx, queue, outcomes)
	at.returned = w.c.now()
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for i, o := range outcomes {
		write := ledgerWrite{span: at, name: o.Action.String(), settles: true, action: o.Action, unknown: err != nil}
		if err == nil {
			write.state = results[i].State
			write.judge(results[i].Err)
		}
		w.c.addWrite(o.Lease, write)
	}
	return results, err
}

// Extend records which extensions were accepted.
func (w *watched) Extend(ctx context.Context, queue string, leases []core.LeaseRef, d time.Duration) ([]core.Extension, error) {
	at := span{sent: w.c.now()}
	results, err := w.Backend.Extend(ctx, queue, leases, d)
	at.returned = w.c.now()
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for i, ref := range leases {
		write := ledgerWrite{span: at, name: "extend", unknown: err != nil}
		if err == nil {
			write.judge(results[i].Err)
		}
		w.c.addWrite(ref, write)
		if l := w.c.tokens[ref.Token]; l != nil && write.accepted {
			l.until = results[i].Until
		}
	}
	return results, err
}

// Save records whether it was accepted.
func (w *watched) Save(ctx context.Context, lease core.LeaseRef, patch core.Patch) error {
	write := ledgerWrite{span: span{sent: w.c.now()}, name: "save"}
	err := w.Backend.Save(ctx, lease, patch)
	write.returned = w.c.now()
	write.judge(err)
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.addWrite(lease, write)
	return err
}

func (w *ledgerWrite) judge(err error) {
	w.accepted = err == nil
	w.unknown = err != nil && !errors.Is(err, core.ErrLeaseLost)
}

func (c *Checker) addWrite(ref core.LeaseRef, w ledgerWrite) {
	if l := c.tokens[ref.Token]; l != nil {
		l.writes = append(l.writes, w)
	}
}

// settled is the accepted settle of a lease, if there is one.
func (l *ledgerLease) settled() *ledgerWrite {
	for i := range l.writes {
		if l.writes[i].settles && l.writes[i].accepted {
			return &l.writes[i]
		}
	}
	return nil
}

// unsure says that a settle of the lease may have been done.
func (l *ledgerLease) unsure() bool {
	for i := range l.writes {
		if l.writes[i].settles && l.writes[i].unknown {
			return true
		}
	}
	return false
}

// final says whether a settle with this state ended the job.
func final(s core.State) bool { return s.Finished() || s == core.StateGone }
