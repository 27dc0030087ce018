package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

// history is a ledger in the making. Its clock ticks with every call, so calls
// that are written one after the other happened one after the other.
type history struct {
	*Checker
	tick time.Duration
	left map[jobName]core.State
}

var storeStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func newHistory() *history {
	return &history{Checker: NewChecker(), left: map[jobName]core.State{}}
}

// call takes a tick from being sent to being answered.
func (h *history) call() span {
	h.tick += 2
	return span{h.tick - 1, h.tick}
}

func (h *history) publish(group, id string, seq int64) {
	h.addJob(ledgerJob{jobName: jobName{"q", id}, group: group, publish: h.call(), acked: true, seq: seq})
}

// claim gives a lease that lasts 10 ticks of the store's clock.
func (h *history) claim(group, id string, seq, fence int64, attempt int) *ledgerLease {
	l := &ledgerLease{
		LeaseRef: core.LeaseRef{Queue: "q", Group: group, JobID: id, Token: fmt.Sprint("t", fence)},
		claim:    h.call(), fence: fence, attempt: attempt, seq: seq, max: 5,
	}
	l.claimedAt = storeStart.Add(l.claim.sent)
	l.until = l.claimedAt.Add(10)
	h.addLease(l)
	return l
}

func (h *history) settle(l *ledgerLease, action core.Action, state core.State) {
	h.addWrite(l.LeaseRef, ledgerWrite{span: h.call(), name: action.String(), settles: true, accepted: true, action: action, state: state})
}

func (h *history) write(l *ledgerLease, name string, accepted bool) {
	h.addWrite(l.LeaseRef, ledgerWrite{span: h.call(), name: name, accepted: accepted})
}

// wait lets the store's clock pass the end of a lease.
func (h *history) wait() { h.tick += 20 }

func (h *history) kinds() []ViolationKind {
	var kinds []ViolationKind
	for _, v := range h.violations(h.left) {
		kinds = append(kinds, v.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

const (
	pending   = core.StatePending
	completed = core.StateCompleted
)

// TestCheckerSees plants each kind of violation, and things that are allowed.
func TestCheckerSees(t *testing.T) {
	for _, c := range []struct {
		name string
		want []ViolationKind
		plan func(h *history)
	}{
		{"nothing in a clean history", nil, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			h.publish("", "u", 3)
			l := h.claim("g", "a", 1, 10, 1)
			u := h.claim("", "u", 3, 11, 1)
			h.write(l, "extend", true)
			h.settle(l, core.Retry, pending)
			l = h.claim("g", "a", 1, 12, 2)
			h.wait() // and it runs out
			next := h.claim("g", "a", 1, 13, 3)
			h.write(l, "save", false)
			h.settle(next, core.Release, pending)
			next = h.claim("g", "a", 1, 14, 3)
			h.settle(next, core.Complete, completed)
			h.settle(u, core.Complete, core.StateGone)
			h.settle(h.claim("g", "b", 2, 15, 1), core.Dead, core.StateDead)
			h.left[jobName{"q", "b"}] = core.StateDead
		}},
		{"a late settle before anybody took over", nil, func(h *history) {
			h.publish("g", "a", 1)
			l := h.claim("g", "a", 1, 10, 1)
			h.wait()
			h.settle(l, core.Complete, completed)
		}},
		{"a settle that was under way during the next claim", nil, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			l := h.claim("g", "a", 1, 10, 1)
			h.settle(l, core.Complete, completed)
			next := h.claim("g", "b", 2, 11, 1)
			l.writes[0].returned = next.claim.returned + 1
			h.settle(next, core.Complete, completed)
		}},
		{"a job that died by expiry", nil, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			h.claim("g", "a", 1, 10, 5)
			h.wait()
			h.left[jobName{"q", "a"}] = core.StateDead
			h.settle(h.claim("g", "b", 2, 11, 1), core.Complete, completed)
		}},
		{"a skipped job", nil, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			l := h.claim("g", "a", 1, 10, 1)
			l.skips = true
			h.settle(l, core.Retry, core.StateRetrying)
			h.settle(h.claim("g", "b", 2, 11, 1), core.Release, pending)
			h.settle(h.claim("g", "a", 1, 12, 2), core.Complete, completed) // rejoined in front
			h.settle(h.claim("g", "b", 2, 13, 1), core.Complete, completed)
		}},
		{"a publish that is unknown", nil, func(h *history) {
			h.addJob(ledgerJob{jobName: jobName{"q", "a"}, publish: h.call()})
		}},
		{"a settle that is unknown", nil, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			l := h.claim("g", "a", 1, 10, 1)
			h.addWrite(l.LeaseRef, ledgerWrite{span: h.call(), settles: true, unknown: true})
			h.settle(h.claim("g", "b", 2, 11, 1), core.Complete, completed)
		}},

		{"a lost job", []ViolationKind{Lost}, func(h *history) { h.publish("g", "a", 1) }},
		{"a job lost after a retry", []ViolationKind{Lost}, func(h *history) {
			h.publish("g", "a", 1)
			h.settle(h.claim("g", "a", 1, 10, 1), core.Retry, pending)
		}},
		{"a stranded job", []ViolationKind{Stranded}, func(h *history) {
			h.publish("g", "a", 1)
			h.left[jobName{"q", "a"}] = pending
		}},
		{"a job handed out after its end", []ViolationKind{Doubled}, func(h *history) {
			h.publish("g", "a", 1)
			h.settle(h.claim("g", "a", 1, 10, 1), core.Complete, completed)
			h.claim("g", "a", 1, 11, 2)
		}},
		{"a job that ended twice", []ViolationKind{Doubled}, func(h *history) {
			h.publish("", "a", 1)
			h.settle(h.claim("", "a", 1, 10, 1), core.Complete, completed)
			h.settle(h.claim("", "a", 1, 11, 2), core.Complete, completed)
		}},
		{"a job that ended and is still there", []ViolationKind{Doubled}, func(h *history) {
			h.publish("g", "a", 1)
			h.settle(h.claim("g", "a", 1, 10, 1), core.Complete, core.StateGone)
			h.left[jobName{"q", "a"}] = pending
		}},
		{"an invented job", []ViolationKind{Invented}, func(h *history) {
			h.settle(h.claim("", "x", 1, 10, 1), core.Complete, completed)
		}},
		{"two live leases", []ViolationKind{Overlap}, func(h *history) {
			h.publish("g", "a", 1)
			h.claim("g", "a", 1, 10, 1)
			h.settle(h.claim("g", "a", 1, 11, 2), core.Complete, completed)
		}},
		{"two live leases of two jobs", []ViolationKind{OutOfOrder, Overlap}, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			l := h.claim("g", "a", 1, 10, 1)
			l.max = core.Unlimited
			next := h.claim("g", "b", 2, 11, 1)
			h.settle(next, core.Complete, completed)
			h.settle(l, core.Retry, pending)
			h.settle(h.claim("g", "a", 1, 12, 2), core.Complete, completed)
		}},
		{"a settle after the take-over", []ViolationKind{StaleAccepted}, func(h *history) {
			h.publish("g", "a", 1)
			l := h.claim("g", "a", 1, 10, 1)
			h.wait()
			next := h.claim("g", "a", 1, 11, 2)
			h.settle(l, core.Retry, pending)
			h.settle(next, core.Complete, completed)
		}},
		{"an extension after the take-over", []ViolationKind{StaleAccepted}, func(h *history) {
			h.publish("g", "a", 1)
			l := h.claim("g", "a", 1, 10, 1)
			h.wait()
			h.claim("g", "a", 1, 11, 2)
			h.write(l, "extend", true)
			h.wait()
			h.settle(h.claim("g", "a", 1, 12, 3), core.Complete, completed)
		}},
		{"a save after the next settle", []ViolationKind{StaleAccepted}, func(h *history) {
			h.publish("g", "a", 1)
			l := h.claim("g", "a", 1, 10, 1)
			h.settle(l, core.Release, pending)
			h.settle(h.claim("g", "a", 1, 11, 1), core.Complete, completed)
			h.write(l, "save", true)
		}},
		{"starts that are not in order of Seq", []ViolationKind{OutOfOrder}, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			h.settle(h.claim("g", "b", 2, 10, 1), core.Complete, completed)
			h.settle(h.claim("g", "a", 1, 11, 1), core.Complete, completed)
		}},
		{"starts of one batch that are not in order of Seq", []ViolationKind{OutOfOrder}, func(h *history) {
			batch := h.call()
			l := h.claim("g", "b", 2, 10, 1)
			batch.returned = l.claim.returned // the claim met the publish
			for seq, id := range []string{"a", "b"} {
				h.addJob(ledgerJob{jobName: jobName{"q", id}, group: "g", publish: batch, acked: true, seq: int64(seq + 1)})
			}
			h.settle(l, core.Complete, completed)
			h.settle(h.claim("g", "a", 1, 11, 1), core.Complete, completed)
		}},
		{"starts of publishes at the same time in any order", nil, func(h *history) {
			h.publish("g", "b", 2)
			l := h.claim("g", "b", 2, 10, 1)
			h.addJob(ledgerJob{jobName: jobName{"q", "a"}, group: "g", publish: span{1, l.claim.returned}, acked: true, seq: 1})
			h.settle(l, core.Complete, completed)
			h.settle(h.claim("g", "a", 1, 11, 1), core.Complete, completed)
		}},
		{"starts that are not in order of publishes", []ViolationKind{OutOfOrder}, func(h *history) {
			h.publish("g", "a", 2) // the store numbered them wrongly
			h.publish("g", "b", 1)
			h.settle(h.claim("g", "b", 1, 10, 1), core.Complete, completed)
			h.settle(h.claim("g", "a", 2, 11, 1), core.Complete, completed)
		}},
		{"a retry that lost its place", []ViolationKind{OutOfOrder}, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			h.settle(h.claim("g", "a", 1, 10, 1), core.Retry, pending)
			h.settle(h.claim("g", "b", 2, 11, 1), core.Complete, completed)
			h.settle(h.claim("g", "a", 1, 12, 2), core.Complete, completed)
		}},
		{"a blocked group that went on", []ViolationKind{OutOfOrder}, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			h.settle(h.claim("g", "a", 1, 10, 1), core.Retry, core.StateRetrying)
			h.settle(h.claim("g", "b", 2, 11, 1), core.Complete, completed)
			h.settle(h.claim("g", "a", 1, 12, 2), core.Complete, completed)
		}},
		{"an expired job that lost its place", []ViolationKind{OutOfOrder}, func(h *history) {
			h.publish("g", "a", 1)
			h.publish("g", "b", 2)
			h.claim("g", "a", 1, 10, 1)
			h.wait()
			h.settle(h.claim("g", "b", 2, 11, 1), core.Complete, completed)
			h.settle(h.claim("g", "a", 1, 12, 2), core.Complete, completed)
		}},
		// Fences are the order in which the checker sees leases, so more looks wrong.
		{"a fence that went back", []ViolationKind{Miscounted, FenceBack, Overlap}, func(h *history) {
			h.publish("", "a", 1)
			h.settle(h.claim("", "a", 1, 10, 1), core.Release, pending)
			h.settle(h.claim("", "a", 1, 9, 1), core.Complete, completed)
		}},
		{"a token given twice", []ViolationKind{FenceBack}, func(h *history) {
			h.publish("", "a", 1)
			h.publish("", "b", 2)
			h.settle(h.claim("", "a", 1, 10, 1), core.Complete, completed)
			l := h.claim("", "b", 2, 11, 1)
			h.settle(l, core.Complete, completed)
			l.Token = "t10"
		}},
		{"an attempt that was not counted", []ViolationKind{Miscounted}, func(h *history) {
			h.publish("", "a", 1)
			h.claim("", "a", 1, 10, 1)
			h.wait()
			h.settle(h.claim("", "a", 1, 11, 1), core.Complete, completed)
		}},
		{"a released attempt that was counted", []ViolationKind{Miscounted}, func(h *history) {
			h.publish("", "a", 1)
			h.settle(h.claim("", "a", 1, 10, 1), core.Release, pending)
			h.settle(h.claim("", "a", 1, 11, 2), core.Complete, completed)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHistory()
			c.plan(h)
			if got := h.kinds(); !slices.Equal(got, c.want) {
				t.Errorf("the checker sees %v, want %v\n%v", got, c.want, h.violations(h.left))
			}
		})
	}
}

// fake is a backend that answers what it is told to.
type fake struct {
	core.Backend
	err  error
	jobs []*core.Job
}

func (b *fake) Publish(_ context.Context, req core.PublishRequest) ([]core.PublishResult, error) {
	results := make([]core.PublishResult, len(req.Jobs))
	for i, j := range req.Jobs {
		results[i] = core.PublishResult{ID: j.ID, Queues: []string{j.Queue}, Seq: int64(i + 1), Existing: j.Kind == "existing"}
		if j.Kind == "refused" {
			results[i].Err = core.ErrDuplicate
		}
	}
	return results, b.err
}

func (b *fake) Claim(_ context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	ref := core.LeaseRef{Queue: req.Queue, Group: "g", JobID: "a", Token: "t"}
	job := &core.Job{ID: "a", Attempt: 1, Seq: 1, MaxAttempts: 3, ClaimedAt: storeStart}
	return core.ClaimResult{Leases: []core.Lease{{LeaseRef: ref, Fence: 1, Until: storeStart.Add(time.Minute), Job: job}}}, b.err
}

func (b *fake) Settle(context.Context, string, []core.Outcome) ([]core.SettleResult, error) {
	return []core.SettleResult{{State: completed, Err: b.err}}, nil
}

func (b *fake) Extend(context.Context, string, []core.LeaseRef, time.Duration) ([]core.Extension, error) {
	return []core.Extension{{Until: storeStart.Add(time.Hour), Err: b.err}}, nil
}

func (b *fake) Save(context.Context, core.LeaseRef, core.Patch) error { return b.err }

func (b *fake) Jobs(_ context.Context, f core.JobFilter) (core.JobPage, error) {
	var page core.JobPage
	for _, j := range b.jobs {
		if j.State == f.State {
			page.Jobs = append(page.Jobs, j)
		}
	}
	return page, nil
}

// TestCheckerRecords checks that the ledger has what went through the backend.
func TestCheckerRecords(t *testing.T) {
	ctx := t.Context()
	b := &fake{}
	c := NewChecker()
	w := c.Watch(b)
	publish := func(jobs ...core.NewJob) { _, _ = w.Publish(ctx, core.PublishRequest{Jobs: jobs}) }
	publish(core.NewJob{Queue: "q", Group: "g", ID: "a"}, core.NewJob{Queue: "q", ID: "r", Kind: "refused"},
		core.NewJob{Queue: "q", ID: "e", Kind: "existing"}, core.NewJob{Queue: "q", ID: "s", Delay: 1})
	b.err = errors.New("connection lost")
	publish(core.NewJob{Queue: "q", ID: "maybe"})
	b.err = nil
	if len(c.jobs) != 3 || !c.jobs[jobName{"q", "a"}].acked || !c.jobs[jobName{"q", "s"}].delayed || c.jobs[jobName{"q", "maybe"}].acked {
		t.Fatalf("the ledger has the jobs %+v", c.jobs)
	}

	res, _ := w.Claim(ctx, core.ClaimRequest{Queue: "q"})
	ref := res.Leases[0].LeaseRef
	if _, err := w.Extend(ctx, "q", []core.LeaseRef{ref}, time.Hour); err != nil || !c.leases[0].until.Equal(storeStart.Add(time.Hour)) {
		t.Fatalf("the lease ends at %v", c.leases[0].until)
	}
	settle := func() { _, _ = w.Settle(ctx, "q", []core.Outcome{{Lease: ref, Action: core.Complete}}) }
	b.err = core.ErrLeaseLost
	settle()
	if c.Refused() != 1 || c.Done() != 0 {
		t.Errorf("%d settles refused and %d jobs done, want 1 and 0", c.Refused(), c.Done())
	}
	if err := w.Save(ctx, ref, core.Patch{}); !errors.Is(err, core.ErrLeaseLost) {
		t.Errorf("Save: %v", err)
	}
	b.err = nil
	settle()
	if c.Done() != 1 {
		t.Errorf("%d jobs done, want 1", c.Done())
	}

	b.jobs = []*core.Job{{ID: "s", State: pending}}
	found, err := c.Check(ctx, b)
	if err != nil || len(found) != 1 || found[0].Kind != Stranded || found[0].JobID != "s" {
		t.Errorf("the checker sees %v (%v), want job s stranded", found, err)
	}
}
