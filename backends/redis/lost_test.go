package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// scripts are the commands of the operations.
var scripts = testserver.Named("EVALSHA", "EVAL")

// cut is a lost command or a lost reply.
type cut struct {
	name string
	plan func(p *testserver.Proxy, n int) *testserver.Cut
}

var cuts = []cut{
	{"command", func(p *testserver.Proxy, n int) *testserver.Cut { return p.CutBefore(n, scripts) }},
	{"reply", func(p *testserver.Proxy, n int) *testserver.Cut { return p.CutAfter(n, scripts) }},
}

// throughProxy runs a test for both cuts, with clients of ours and of a caller
// who lets his repeat commands.
func throughProxy(t *testing.T, test func(t *testing.T, b *Backend, cut func(n int) *testserver.Cut)) {
	server := testserver.Redis(t)
	for _, c := range cuts {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/own=%v", c.name, own), func(t *testing.T) {
				proxy := testserver.NewProxy(t, server.Addr(), testserver.RESP)
				b := viaProxy(t, proxy, own)
				test(t, b, func(n int) *testserver.Cut { return c.plan(proxy, n) })
			})
		}
	}
}

func viaProxy(t *testing.T, proxy *testserver.Proxy, own bool) *Backend {
	t.Helper()
	if own {
		return open(t, "redis://"+proxy.Addr(), Options{})
	}
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: 5})
	t.Cleanup(func() { _ = client.Close() })
	b, err := New(t.Context(), client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// wantFired fails unless the cut has come, so that a test can not pass without it.
func wantFired(t *testing.T, c *testserver.Cut) {
	t.Helper()
	if !c.Fired() {
		t.Fatal("nothing was cut")
	}
}

// A publish whose command or reply is lost stores its jobs once, also when they
// were claimed and completed before it came again.
func TestLostPublish(t *testing.T) {
	throughProxy(t, func(t *testing.T, b *Backend, cut func(int) *testserver.Cut) {
		for name, job := range map[string]core.NewJob{
			"plain": {Group: "g"}, "own id": {ID: "mine"}, "delay": {Group: "g", Delay: time.Hour}, "dedup": {Dedup: core.Dedup{Key: "k"}},
		} {
			job.Queue = testserver.UniqueName(t)
			put(t, b, core.NewJob{Queue: job.Queue, ID: "first"}) // the script is known, the queue listed
			c := cut(1)
			res := must[[]core.PublishResult](t)(b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{job, {Queue: job.Queue}}}))
			wantFired(t, c)
			for _, r := range res {
				if r.Err != nil || r.Existing {
					t.Errorf("%s: %+v", name, r)
				}
				if stored := must[*core.Job](t)(b.Job(t.Context(), job.Queue, r.ID)); stored.Seq != r.Seq {
					t.Errorf("%s: Seq is %d, the publish said %d", name, stored.Seq, r.Seq)
				}
			}
			got := counts(t, b, job.Queue)
			if n := got[core.StatePending] + got[core.StateScheduled]; n != 3 {
				t.Errorf("%s: %d jobs are stored, want 3", name, n)
			}
		}
	})
}

func TestLostPublishToFamilies(t *testing.T) {
	throughProxy(t, func(t *testing.T, b *Backend, cut func(int) *testserver.Cut) {
		var jobs []core.NewJob
		for range 3 {
			jobs = append(jobs, core.NewJob{Queue: testserver.UniqueName(t), Group: "g"})
		}
		must[[]core.PublishResult](t)(b.Publish(t.Context(), core.PublishRequest{Jobs: jobs}))
		c := cut(2)
		must[[]core.PublishResult](t)(b.Publish(t.Context(), core.PublishRequest{Jobs: jobs}))
		wantFired(t, c)
		for _, job := range jobs {
			if n := counts(t, b, job.Queue)[core.StatePending]; n != 2 {
				t.Errorf("queue %q has %d jobs, want 2", job.Queue, n)
			}
		}
	})
}

// A claim whose reply is lost gives the leases it made, and spends one attempt.
func TestLostClaim(t *testing.T) {
	throughProxy(t, func(t *testing.T, b *Backend, cut func(int) *testserver.Cut) {
		queue := testserver.UniqueName(t)
		for i := range 5 {
			put(t, b, core.NewJob{Queue: queue, Group: fmt.Sprint("g", i%3), Headers: map[string]string{"n": fmt.Sprint(i)}})
			put(t, b, core.NewJob{Queue: queue, Dedup: core.Dedup{Key: fmt.Sprint(i)}})
		}
		settle(t, b, take(t, b, queue), core.Outcome{Action: core.Release})
		c := cut(1)
		res := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: 6, Lease: time.Minute, Owner: "me"}))
		wantFired(t, c)
		if n := counts(t, b, queue)[core.StateRunning]; n != 6 || len(res.Leases) != 6 {
			t.Fatalf("%d jobs are running and %d leases were handed out, want 6", n, len(res.Leases))
		}
		last := int64(0)
		for _, l := range res.Leases {
			seen := must[*core.Job](t)(b.Job(t.Context(), queue, l.JobID))
			if l.Job.Attempt != 1 || seen.Attempt != 1 || seen.Lease.Fence != l.Fence || !seen.Lease.Until.Equal(l.Until) || !seen.ClaimedAt.Equal(l.Job.ClaimedAt) {
				t.Errorf("lease %+v of %+v, but the store has %+v, %+v", l, l.Job, seen, seen.Lease)
			}
			if l.Fence <= last {
				t.Errorf("fence %d after %d", l.Fence, last)
			}
			last = l.Fence
			if r := settle(t, b, l, core.Outcome{Action: core.Complete}); r.Err != nil {
				t.Error(r.Err)
			}
		}
	})
}

// A settle whose reply is lost tells what it did, and does it once.
func TestLostSettle(t *testing.T) {
	throughProxy(t, func(t *testing.T, b *Backend, cut func(int) *testserver.Cut) {
		queue := testserver.UniqueName(t)
		var outcomes []core.Outcome
		for action := core.Complete; action <= core.Cancel; action++ {
			put(t, b, core.NewJob{Queue: queue, Group: action.String()})
			outcomes = append(outcomes, core.Outcome{Lease: take(t, b, queue).LeaseRef, Action: action, Error: "x", Delay: time.Hour})
		}
		stale := outcomes[0]
		stale.Lease.Token = "stale"
		outcomes = append(outcomes, stale)
		c := cut(1)
		results := must[[]core.SettleResult](t)(b.Settle(t.Context(), queue, outcomes))
		wantFired(t, c)
		for i, want := range []core.State{
			core.StateGone, core.StateRetrying, core.StatePending, core.StateScheduled, core.StateDead, core.StateCancelled,
		} {
			if results[i].Err != nil || results[i].State != want {
				t.Errorf("%s: %+v, want %s", outcomes[i].Action, results[i], want)
			}
		}
		if !errors.Is(results[6].Err, core.ErrLeaseLost) {
			t.Errorf("the stale lease: %+v", results[6])
		}
		stats := must[[]core.DayStats](t)(b.Stats(t.Context(), queue, 1))
		if s := stats[0]; s.Completed != 1 || s.Failed != 2 || s.Dead != 1 || s.Cancelled != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

// A leader that does not hear that it is the leader still is.
func TestLostRecord(t *testing.T) {
	throughProxy(t, func(t *testing.T, b *Backend, cut func(int) *testserver.Cut) {
		put := core.PutRecord{Space: testserver.UniqueName(t), Key: "leader", Value: []byte("me"), When: core.IfAbsent, TTL: time.Minute}
		must[core.Record](t)(b.PutRecord(t.Context(), core.PutRecord{Space: put.Space, Key: "other"}))
		c := cut(1)
		r := must[core.Record](t)(b.PutRecord(t.Context(), put))
		wantFired(t, c)
		got := must[core.Record](t)(b.GetRecord(t.Context(), put.Space, put.Key))
		if got.Version != r.Version || !got.Expires.Equal(r.Expires) {
			t.Errorf("the record is %+v, the write said %+v", got, r)
		}
	})
}

// A counter is not added to twice: when the reply is lost, the caller is told.
func TestLostIncrement(t *testing.T) {
	throughProxy(t, func(t *testing.T, b *Backend, cut func(int) *testserver.Cut) {
		space := testserver.UniqueName(t)
		must[int64](t)(b.Increment(t.Context(), space, "n", 1, 0))
		c := cut(1)
		_, err := b.Increment(t.Context(), space, "n", 1, 0)
		wantFired(t, c)
		if !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		if n := must[int64](t)(b.Increment(t.Context(), space, "n", 0, 0)); n > 2 {
			t.Errorf("the counter is at %d after two increments", n)
		}
	})
}

// A claim that its caller gives up gives its leases back.
func TestAbandonedClaim(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	put(t, b, core.NewJob{Queue: "q", Group: "g"})
	settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Release})
	server.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Second {
		t.Errorf("got %v after %s, want the context's end", err, time.Since(start))
	}
	server.Thaw()
	deadline := time.Now().Add(10 * time.Second)
	for {
		job := must[core.JobPage](t)(b.Jobs(t.Context(), core.JobFilter{Queue: "q", Group: "g"})).Jobs[0]
		if job.State == core.StatePending && job.Attempt == 0 {
			// Both before the claim and after it was given back; ask that the claim
			// has come.
			if !job.ClaimedAt.IsZero() && job.RunAt.After(job.CreatedAt) {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the lease was not given back: %+v", job)
		}
		time.Sleep(time.Millisecond)
	}
	take(t, b, "q")
}

// Close does not wait for ever for a server that does not answer.
func TestCloseWhileFrozen(t *testing.T) {
	server := testserver.Redis(t)
	b, err := Open(t.Context(), server.URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	must[<-chan core.Wake](t)(b.Wakes(t.Context(), "q"))
	server.Freeze()
	defer server.Thaw()
	failed := make(chan error, 1)
	go func() {
		_, err := b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: "q"}}})
		failed <- err
	}()
	time.Sleep(50 * time.Millisecond) // let it be sent; if it is not, Publish answers ErrClosed
	start := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
	if err := <-failed; err == nil {
		t.Error("the publish succeeded")
	}
}
