package faultsuite

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// recorder is a worker's backend that logs every call that concerns a lease.
type recorder struct {
	worker.Backend
	log *log
}

// Claim logs the leases before the worker knows of them.
func (r recorder) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	sent := now()
	res, err := r.Backend.Claim(ctx, req)
	done := now()
	for _, l := range res.Leases {
		r.log.write(Event{
			Kind: Claimed, Sent: sent, Done: done, Lease: int64(req.Lease),
			Job: l.JobID, Group: l.Group, Seq: l.Job.Seq, Token: l.Token, Fence: l.Fence, Attempt: l.Job.Attempt,
		})
		r.compare(l)
	}
	return res, err
}

// compare logs a lease that contradicts itself or brings another job's contents.
func (r recorder) compare(l core.Lease) {
	switch {
	case string(l.Job.Payload) != l.JobID:
		r.bad("job %s has the payload %.40q", l.JobID, l.Job.Payload)
	case l.Job.ID != l.JobID || l.Job.Group != l.Group || l.Job.State != core.StateRunning:
		r.bad("lease of job %s of group %s brings job %s of group %s, %s", l.JobID, l.Group, l.Job.ID, l.Job.Group, l.Job.State)
	case l.Job.Lease == nil || l.Job.Lease.Fence != l.Fence:
		r.bad("job %s does not carry its lease", l.JobID)
	}
}

func (r recorder) bad(format string, args ...any) {
	r.log.write(Event{Kind: Bad, Done: now(), Text: fmt.Sprintf(format, args...)})
}

// Settle logs each outcome before and after.
func (r recorder) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	sent := now()
	for _, o := range outcomes {
		r.log.write(r.settle(Settling, o, sent))
	}
	res, err := r.Backend.Settle(ctx, queue, outcomes)
	done := now()
	for i, o := range outcomes {
		e := r.settle(Settled, o, sent)
		e.Done, e.Err = done, errText(err)
		if err == nil {
			e.State, e.Err = res[i].State, errText(res[i].Err)
		}
		r.log.write(e)
	}
	return res, err
}

func (r recorder) settle(kind Kind, o core.Outcome, sent int64) Event {
	return Event{Kind: kind, Sent: sent, Job: o.Lease.JobID, Group: o.Lease.Group, Action: o.Action, Token: o.Lease.Token}
}

// Extend logs each extension.
func (r recorder) Extend(ctx context.Context, queue string, leases []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	sent := now()
	res, err := r.Backend.Extend(ctx, queue, leases, lease)
	done := now()
	for i, l := range leases {
		e := Event{Kind: Wrote, Sent: sent, Done: done, Job: l.JobID, Group: l.Group, Token: l.Token, Lease: int64(lease), Err: errText(err)}
		if err == nil {
			e.Err = errText(res[i].Err)
		}
		r.log.write(e)
	}
	return res, err
}

// Save logs a save.
func (r recorder) Save(ctx context.Context, l core.LeaseRef, patch core.Patch) error {
	sent := now()
	err := r.Backend.Save(ctx, l, patch)
	r.log.write(Event{Kind: Wrote, Sent: sent, Done: now(), Job: l.JobID, Group: l.Group, Token: l.Token, Err: errText(err)})
	return err
}
