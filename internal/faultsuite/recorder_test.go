package faultsuite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// script is a backend that answers what a test wants.
type script struct {
	worker.Backend
	leases []core.Lease
	err    error // of calls
	lost   error // of each lease
}

func (s script) Claim(context.Context, core.ClaimRequest) (core.ClaimResult, error) {
	return core.ClaimResult{Leases: s.leases}, s.err
}

func (s script) Settle(_ context.Context, _ string, o []core.Outcome) ([]core.SettleResult, error) {
	if s.err != nil {
		return nil, s.err
	}
	return slices.Repeat([]core.SettleResult{{State: core.StateRetrying, Err: s.lost}}, len(o)), nil
}

func (s script) Extend(_ context.Context, _ string, l []core.LeaseRef, _ time.Duration) ([]core.Extension, error) {
	if s.err != nil {
		return nil, s.err
	}
	return slices.Repeat([]core.Extension{{Err: s.lost}}, len(l)), nil
}

func (s script) Save(context.Context, core.LeaseRef, core.Patch) error {
	return errors.Join(s.err, s.lost)
}

// record lets a recorder make all calls and gives what it wrote.
func record(s script) []Event {
	var events []Event
	r := recorder{s, &log{w: lineWriter(func(line string) { events = append(events, parse("p", line)) })}}
	ctx := context.Background()
	_, _ = r.Claim(ctx, core.ClaimRequest{Lease: time.Second})
	ref := core.LeaseRef{Queue: "q", Group: "g", JobID: "j", Token: "t"}
	_, _ = r.Settle(ctx, "q", []core.Outcome{{Lease: ref, Action: core.Retry}})
	_, _ = r.Extend(ctx, "q", []core.LeaseRef{ref}, time.Second)
	_ = r.Save(ctx, ref, core.Patch{})
	return events
}

func goodLease() core.Lease {
	return core.Lease{
		LeaseRef: core.LeaseRef{Queue: "q", Group: "g", JobID: "j", Token: "t"}, Fence: 7,
		Job: &core.Job{
			ID: "j", Group: "g", Seq: 5, Attempt: 2, Payload: []byte("j"), State: core.StateRunning,
			Lease: &core.LeaseInfo{Fence: 7},
		},
	}
}

func TestRecorderWritesEveryCall(t *testing.T) {
	for want, s := range map[string]script{
		"":                        {leases: []core.Lease{goodLease()}},
		Lost:                      {leases: []core.Lease{goodLease()}, lost: fmt.Errorf("wrapped: %w", core.ErrLeaseLost)},
		Unknown + "store is gone": {leases: []core.Lease{goodLease()}, err: errors.New("store is gone")},
	} {
		var kinds []Kind
		events := record(s)
		for i, e := range events {
			kinds = append(kinds, e.Kind)
			if e.Proc != "p" || e.Job != "j" || e.Group != "g" || e.Token != "t" || e.Sent == 0 {
				t.Errorf("%q: event %d is %+v", want, i, e)
			}
			if i > 1 && (e.Err != want || e.Done < e.Sent) {
				t.Errorf("event %d is %+v, want the error %q", i, e, want)
			}
		}
		if !slices.Equal(kinds, []Kind{Claimed, Settling, Settled, Wrote, Wrote}) {
			t.Fatalf("%q: events %v", want, kinds)
		}
		if c := events[0]; c.Seq != 5 || c.Fence != 7 || c.Attempt != 2 || c.Lease != int64(time.Second) {
			t.Errorf("claimed: %+v", c)
		}
		if e := events[2]; e.Action != core.Retry || want == "" && e.State != core.StateRetrying {
			t.Errorf("settled: %+v", e)
		}
	}
}

func TestRecorderSeesWrongLeases(t *testing.T) {
	for want, change := range map[string]func(*core.Lease){
		"has the payload":          func(l *core.Lease) { l.Job.Payload = []byte("k") },
		"brings job k":             func(l *core.Lease) { l.Job.ID = "k" },
		"of group h":               func(l *core.Lease) { l.Job.Group = "h" },
		"of group g, pending":      func(l *core.Lease) { l.Job.State = core.StatePending },
		"does not carry its lease": func(l *core.Lease) { l.Job.Lease.Fence = 6 },
	} {
		l := goodLease()
		change(&l)
		events := record(script{leases: []core.Lease{l}})
		if e := events[1]; e.Kind != Bad || !strings.Contains(e.Text, want) {
			t.Errorf("want something bad about %q, got %+v", want, e)
		}
	}
}
