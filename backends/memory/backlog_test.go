package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
)

// The numbers of docs/state-machine.md: how often a group with a backlog is served
// under a stream of new groups, by ten slots and jobs of 100 ms.
func TestHowLongAnOldBacklogWaits(t *testing.T) {
	for _, c := range []struct {
		perSecond   int // new groups
		headStart   time.Duration
		least, most time.Duration // between two jobs of the backlog
	}{
		{90, 0, 100 * time.Millisecond, 120 * time.Millisecond},
		{100, 0, 10 * time.Second, 10500 * time.Millisecond},
		{100, time.Second, time.Second, 2 * time.Second},
	} {
		start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		now := start
		b := memory.New(memory.Options{Now: func() time.Time { return now }})
		ctx := t.Context()
		if err := b.Configure(ctx, "q", core.QueueConfig{HeadStart: c.headStart}); err != nil {
			t.Fatal(err)
		}
		publish := func(group string) {
			if _, err := core.Publish(ctx, b, core.NewJob{Queue: "q", Group: group}); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 {
			publish("old")
		}
		type handler struct {
			lease core.LeaseRef
			ends  time.Time
		}
		var handlers []handler
		var served []time.Time
		published := 0
		for now.Before(start.Add(100 * time.Second)) {
			for len(handlers) > 0 && !handlers[0].ends.After(now) {
				res, err := b.Settle(ctx, "q", []core.Outcome{{Lease: handlers[0].lease, Action: core.Complete}})
				if err != nil || res[0].Err != nil {
					t.Fatal(err, res)
				}
				handlers = handlers[1:]
			}
			for ; published < int(now.Sub(start).Seconds()*float64(c.perSecond)); published++ {
				publish(fmt.Sprint("new", published))
			}
			if free := 10 - len(handlers); free > 0 {
				res, err := b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: free, Lease: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range res.Leases {
					if l.Group == "old" {
						served = append(served, now)
					}
					handlers = append(handlers, handler{l.LeaseRef, now.Add(100 * time.Millisecond)})
				}
			}
			now = now.Add(5 * time.Millisecond)
		}
		// The first seconds fill the line.
		half := served[len(served)/2:]
		if len(half) < 2 {
			t.Fatalf("%+v: served at %v only", c, served)
		}
		mean := half[len(half)-1].Sub(half[0]) / time.Duration(len(half)-1)
		if mean < c.least || mean > c.most {
			t.Errorf("at %d new groups a second and a head start of %v it is served every %v, want %v to %v",
				c.perSecond, c.headStart, mean, c.least, c.most)
		}
	}
}
