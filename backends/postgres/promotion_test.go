package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

// failover is a load on a pair, and the ledger of what was acknowledged.
type failover struct {
	queue
	mu        sync.Mutex
	published map[string]bool // acknowledged
	runs      []run           // whose completion was acknowledged
	refused   int             // completions that were answered with ErrLeaseLost
}

// run is a lease from the answer of its claim to just before its completion was
// sent: it was held for all of that time.
type run struct {
	group, id string
	n         int // of its group's jobs
	from, to  time.Time
}

const (
	failoverGroups  = 6
	failoverWorkers = 3
)

// publish is the one publisher of a group. It repeats what was not acknowledged, as
// ids make that safe.
func (f *failover) publishGroup(ctx context.Context, group string) {
	for i := 0; ctx.Err() == nil; {
		id := fmt.Sprintf("%s-%d", group, i)
		res, err := f.b.Publish(context.WithoutCancel(ctx), f.jobs(group, id))
		if err == nil {
			err = res[0].Err
		}
		switch {
		case err == nil, errors.Is(err, core.ErrIDTaken):
			f.mu.Lock()
			f.published[id] = true
			f.mu.Unlock()
			i++
		case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrMisconfigured):
			time.Sleep(5 * time.Millisecond)
		default:
			f.Errorf("publish: %v", err)
			return
		}
	}
}

func (f *failover) work(ctx context.Context) {
	for ctx.Err() == nil {
		res, err := f.b.Claim(ctx, core.ClaimRequest{Queue: f.name, Max: 2, Lease: 2 * time.Second})
		from := time.Now()
		if err != nil || len(res.Leases) == 0 {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		time.Sleep(time.Millisecond)
		to := time.Now()
		settled, err := f.b.Settle(context.WithoutCancel(ctx), f.name, outcomes(core.Complete, res.Leases...))
		if err != nil {
			continue // unknown: the lease runs out, or the job is done
		}
		f.mu.Lock()
		for i, l := range res.Leases {
			switch {
			case settled[i].Err == nil:
				var n int
				if _, err := fmt.Sscanf(l.JobID, l.Group+"-%d", &n); err != nil {
					f.Errorf("job %q: %v", l.JobID, err)
				}
				f.runs = append(f.runs, run{l.Group, l.JobID, n, from, to})
			case errors.Is(settled[i].Err, core.ErrLeaseLost):
				f.refused++
			default:
				f.Errorf("settle: %v", settled[i].Err)
			}
		}
		f.mu.Unlock()
	}
}

// acknowledged copies the ids of what was published.
func (f *failover) acknowledged() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := map[string]bool{}
	for id := range f.published {
		ids[id] = true
	}
	return ids
}

// A standby that lags is promoted under load, and the same processes go on. Checked:
// what was acknowledged before the standby lost touch, and what was acknowledged
// after the promotion, is done; no two runs of one group overlap, even one of before
// and one of after; nobody completes a job twice after the promotion, and each group
// is then done in order. What was acknowledged in between may be lost or run again.
func TestPromotionUnderLoad(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	b := open(t, p.both()+"&pool_max_conns=6", Options{})
	f := &failover{queue: newQueue(t, b), published: map[string]bool{}}
	f.stored(b.Publish(t.Context(), f.jobs("first", "first-0")))
	publishing, stop := context.WithCancel(t.Context())
	working, end := context.WithCancel(t.Context())
	var publishers, workers sync.WaitGroup
	defer func() { stop(); end(); publishers.Wait(); workers.Wait() }()
	for i := range failoverGroups {
		publishers.Go(func() { f.publishGroup(publishing, fmt.Sprint("g", i)) })
	}
	for range failoverWorkers {
		workers.Go(func() { f.work(working) })
	}
	more := func(n int) {
		t.Helper()
		before := len(f.acknowledged())
		eventually(t, "jobs are published", func() bool { return len(f.acknowledged()) >= before+n })
	}
	more(200)
	before := f.acknowledged()
	p.caughtUp()
	p.detach()
	more(50)
	p.failOver()
	promoted := time.Now()
	between := f.acknowledged()
	more(200)
	stop()
	publishers.Wait()
	f.mustBeDone(before, "before the standby lost touch")
	after := f.acknowledged()
	for id := range between {
		delete(after, id)
	}
	f.mustBeDone(after, "after the promotion")
	end()
	workers.Wait()
	f.judge(promoted)
}

// mustBeDone waits until all of these jobs are completed.
func (f *failover) mustBeDone(ids map[string]bool, when string) {
	f.Helper()
	left := 0
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		done := map[string]bool{}
		for _, r := range f.runs {
			done[r.id] = true
		}
		f.mu.Unlock()
		left = 0
		for id := range ids {
			if !done[id] {
				left++
			}
		}
		if left == 0 || time.Now().After(deadline) {
			break
		}
	}
	if left > 0 {
		f.Errorf("%d of %d jobs that were acknowledged %s are not done", left, len(ids), when)
	}
}

func (f *failover) judge(promoted time.Time) {
	f.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	// They were written down as their answers came.
	slices.SortFunc(f.runs, func(a, b run) int { return a.from.Compare(b.from) })
	again := 0
	done := map[string]int{}
	last := map[string]int{}
	for i, r := range f.runs {
		for _, o := range f.runs[:i] {
			if o.group == r.group && o.from.Before(r.to) && r.from.Before(o.to) {
				f.Errorf("runs of %s and %s overlapped", o.id, r.id)
			}
		}
		if done[r.id]++; done[r.id] > 1 {
			again++
		}
	}
	afterwards := map[string]bool{}
	for _, r := range f.runs {
		if r.from.Before(promoted) {
			continue
		}
		if afterwards[r.id] {
			f.Errorf("job %s was completed twice after the promotion", r.id)
		}
		afterwards[r.id] = true
		if n, ok := last[r.group]; ok && r.n < n {
			f.Errorf("job %s was done after number %d of its group", r.id, n)
		}
		last[r.group] = r.n
	}
	f.Logf("%d jobs acknowledged, %d completions, %d of them again, %d refused", len(f.published), len(f.runs), again, f.refused)
}
