package backendtest

import (
	"context"

	"github.com/rota-queue/rota/core"
)

// call is one call of one method. What it touches may not exist.
type call struct {
	name string
	do   func(ctx context.Context, b core.Backend, queue string) error
}

// queueCalls are calls of every method that names a queue or topic.
var queueCalls = []call{
	{"Publish", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Publish(ctx, core.PublishRequest{Jobs: []core.NewJob{{Queue: q, ID: "call"}}})
		return err
	}},
	{"Publish to a topic", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Publish(ctx, core.PublishRequest{Jobs: []core.NewJob{{Topic: q, ID: "call"}}})
		return err
	}},
	{"Publish a batch", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Publish(ctx, core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{{Queue: q}, {Queue: q}}})
		return err
	}},
	{"Claim", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Claim(ctx, core.ClaimRequest{Queue: q, Max: 1, Lease: hour})
		return err
	}},
	{"Settle", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Settle(ctx, q, []core.Outcome{{Lease: core.LeaseRef{Queue: q, JobID: "j", Token: "t"}, Action: core.Complete}})
		return err
	}},
	{"Extend", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Extend(ctx, q, []core.LeaseRef{{Queue: q, JobID: "j", Token: "t"}}, hour)
		return err
	}},
	{"Save", func(ctx context.Context, b core.Backend, q string) error {
		return b.Save(ctx, core.LeaseRef{Queue: q, JobID: "j", Token: "t"}, core.Patch{})
	}},
	{"QueueInfo", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.QueueInfo(ctx, q)
		return err
	}},
	{"Stats", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Stats(ctx, q, 1)
		return err
	}},
	{"Job", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Job(ctx, q, "j")
		return err
	}},
	{"Jobs", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Jobs(ctx, core.JobFilter{Queue: q, State: core.StateDead})
		return err
	}},
	{"Group", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Group(ctx, q, "g")
		return err
	}},
	{"Groups", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Groups(ctx, core.GroupFilter{Queue: q})
		return err
	}},
	{"Configure", func(ctx context.Context, b core.Backend, q string) error {
		return b.Configure(ctx, q, core.QueueConfig{})
	}},
	{"PauseQueue", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.PauseQueue(ctx, q)
		return err
	}},
	{"ResumeQueue", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.ResumeQueue(ctx, q)
		return err
	}},
	{"DeleteQueue", func(ctx context.Context, b core.Backend, q string) error {
		return b.DeleteQueue(ctx, q, true)
	}},
	{"ActOnGroup", func(ctx context.Context, b core.Backend, q string) error {
		return b.ActOnGroup(ctx, q, "g", core.PauseGroup)
	}},
	{"Move", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Move(ctx, core.MoveRequest{Queue: q, To: core.StateGone, IDs: []string{"j"}})
		return err
	}},
	{"Move by state", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Move(ctx, core.MoveRequest{Queue: q, To: core.StateGone, From: core.StateDead})
		return err
	}},
	{"Update", func(ctx context.Context, b core.Backend, q string) error {
		return b.Update(ctx, q, "j", core.Patch{}, 0)
	}},
	{"Purge", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Purge(ctx, q, 1)
		return err
	}},
	{"Bind", func(ctx context.Context, b core.Backend, q string) error {
		return b.Bind(ctx, q, q+"@call")
	}},
	{"Unbind", func(ctx context.Context, b core.Backend, q string) error {
		return b.Unbind(ctx, q, q+"@call")
	}},
	{"Bindings", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Bindings(ctx, q)
		return err
	}},
	{"Wakes", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Wakes(ctx, q)
		return err
	}},
	{"Events", func(ctx context.Context, b core.Backend, q string) error {
		_, err := b.Events(ctx, core.EventFilter{Queue: q})
		return err
	}},
}

// otherCalls are calls of the methods that name no queue; the name is a space.
var otherCalls = []call{
	{"Now", func(ctx context.Context, b core.Backend, _ string) error {
		_, err := b.Now(ctx)
		return err
	}},
	{"Queues", func(ctx context.Context, b core.Backend, _ string) error {
		_, err := b.Queues(ctx)
		return err
	}},
	{"PutRecord", func(ctx context.Context, b core.Backend, s string) error {
		_, err := b.PutRecord(ctx, core.PutRecord{Space: s, Key: "k", TTL: core.MinLease})
		return err
	}},
	{"GetRecord", func(ctx context.Context, b core.Backend, s string) error {
		_, err := b.GetRecord(ctx, s, "k")
		return err
	}},
	{"DeleteRecord", func(ctx context.Context, b core.Backend, s string) error {
		return b.DeleteRecord(ctx, s, "k", 0)
	}},
	{"Records", func(ctx context.Context, b core.Backend, s string) error {
		_, err := b.Records(ctx, core.RecordFilter{Space: s})
		return err
	}},
	{"Increment", func(ctx context.Context, b core.Backend, s string) error {
		_, err := b.Increment(ctx, s, "k", 1, core.MinLease)
		return err
	}},
}
