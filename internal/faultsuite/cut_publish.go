package faultsuite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

// cutOperations are the operations that are cut, by name.
var cutOperations = map[string]func(*cutting){
	"PublishWithIDs":    cutPublishIDs,
	"PublishWithoutIDs": cutPublishNoIDs,
	"PublishWithDedup":  cutPublishDedup,
	"PublishWithWindow": cutPublishWindow,
	"Claim":             cutClaim,
	"Settle":            cutSettle,
	"Extend":            cutExtend,
	"Save":              cutSave,
	"MoveToPending":     cutMovePending,
	"MoveByState":       cutMoveMany,
}

// Jobs with ids of their own can be published again safely.
func cutPublishIDs(c *cutting) {
	jobs := []core.NewJob{
		{Queue: c.queue, ID: "a", Group: "g"}, {Queue: c.queue, ID: "b", Group: "g"},
		{Queue: c.queue, ID: "c", Group: "h"}, {Queue: c.queue, ID: "d"},
	}
	var results []core.PublishResult
	failed := c.insist(func(ctx context.Context) (err error) {
		results, err = c.b.Publish(ctx, core.PublishRequest{Jobs: jobs})
		return err
	})
	taken := 0
	for i, r := range results {
		switch {
		case errors.Is(r.Err, core.ErrIDTaken):
			taken++
		case r.Err != nil || r.ID != jobs[i].ID || r.Seq == 0:
			c.Errorf("%v: job %s: %+v", c.plan, jobs[i].ID, r)
		}
	}
	if taken != 0 && (failed == 0 || taken != len(jobs)) {
		c.Errorf("%v: after %d failed calls %d of %d ids were taken", c.plan, failed, taken, len(jobs))
	}
	equal(c, "jobs", fmt.Sprint(c.ids(core.StatePending)), "[a b c d]")
	equal(c, "statistics", c.totals(), core.DayStats{})
	var order []string
	for range 3 {
		leases := c.claim(time.Hour)
		for _, l := range leases {
			order = append(order, l.JobID)
		}
		c.settle(core.Complete, leases...)
	}
	equal(c, "number of jobs handed out", len(order), 4)
	if slices.Index(order, "a") > slices.Index(order, "b") {
		c.Errorf("%v: handed out in the order %v", c.plan, order)
	}
}

// Without ids a call is stored once when it is acknowledged, and as a whole or
// not at all.
func cutPublishNoIDs(c *cutting) {
	var results []core.PublishResult
	failed := c.insist(func(ctx context.Context) (err error) {
		results, err = c.b.Publish(ctx, core.PublishRequest{Jobs: []core.NewJob{
			{Queue: c.queue, Group: "g"}, {Queue: c.queue, Group: "h"}, {Queue: c.queue},
		}})
		return err
	})
	ids := c.ids(core.StatePending)
	if len(ids)%3 != 0 || len(ids) < 3 || len(ids) > 3*(1+failed) {
		c.Errorf("%v: %d jobs are stored after %d failed calls and an acknowledged one with 3 jobs", c.plan, len(ids), failed)
	}
	for _, r := range results {
		c.check(r.Err)
		if !slices.Contains(ids, r.ID) {
			c.Errorf("%v: job %s was acknowledged and is not there", c.plan, r.ID)
		}
	}
}

// A dedup key keeps a call that is made again from being stored again, with an id
// made for each call.
func cutPublishDedup(c *cutting) {
	var result core.PublishResult
	failed := c.insist(func(ctx context.Context) (err error) {
		result, err = core.Publish(ctx, c.b, core.NewJob{
			Queue: c.queue, Group: "g", Dedup: core.Dedup{Key: "k", OnConflict: core.ReturnExisting},
		})
		return err
	})
	equal(c, "jobs", fmt.Sprint(c.ids(core.StatePending)), "["+result.ID+"]")
	if result.Existing && failed == 0 {
		c.Errorf("%v: the first call met a job that was there", c.plan)
	}
}

// A dedup key with a window keeps a call that is made again from being stored
// again, also when the job has completed meanwhile and was not kept. An id of its
// own does not: it is free again then.
func cutPublishWindow(c *cutting) {
	job := core.NewJob{
		Queue: c.queue, ID: "a", Group: "g", Retention: core.None,
		Dedup: core.Dedup{Key: "k", Window: time.Hour, OnConflict: core.ReturnExisting},
	}
	handedOut := 0
	work := func() {
		leases := c.claim(time.Hour)
		handedOut += len(leases)
		c.settle(core.Complete, leases...)
	}
	c.insist(func(ctx context.Context) error {
		_, err := c.b.Publish(ctx, core.PublishRequest{Jobs: []core.NewJob{job}})
		work()
		return err
	})
	work()
	equal(c, "number of times the job was handed out", handedOut, 1)
	equal(c, "statistics", c.totals(), core.DayStats{Completed: 1})
}

// Moving by id a second time says that the job is there already.
func cutMovePending(c *cutting) {
	c.publish(core.NewJob{ID: "dead", Group: "g", OnExhausted: core.Hold}, core.NewJob{ID: "next", Group: "g"})
	c.settle(core.Dead, c.claim(time.Hour)...)
	c.publish(core.NewJob{ID: "late", Delay: time.Hour})
	before := c.totals()
	var res core.MoveResult
	failed := c.insist(func(ctx context.Context) (err error) {
		res, err = c.b.Move(ctx, core.MoveRequest{Queue: c.queue, To: core.StatePending, IDs: []string{"dead", "late"}})
		return err
	})
	for i, err := range res.Errs {
		var state *core.StateError
		if err != nil && (failed == 0 || !errors.As(err, &state) || state.State != core.StatePending) {
			c.Errorf("%v: job %d: %v", c.plan, i, err)
		}
	}
	if moved := 2 - countErrors(res.Errs); moved != res.Moved {
		c.Errorf("%v: moved %d, without an error %d", c.plan, res.Moved, moved)
	}
	equal(c, "pending", fmt.Sprint(c.ids(core.StatePending)), "[dead late next]")
	equal(c, "statistics", c.totals(), before)
	equal(c, "jobs that can be claimed", len(c.claim(time.Hour)), 2)
	equal(c, "state of the job that was dead", c.job("dead").State, core.StateRunning)
}

func countErrors(errs []error) int {
	n := 0
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

// Moving by state a second time finds what is left.
func cutMoveMany(c *cutting) {
	const jobs = 5
	for i := range jobs {
		c.publish(core.NewJob{ID: fmt.Sprint("j", i), Group: "g"})
	}
	moved, failed := 0, 0
	for more := true; more; {
		failed += c.insist(func(ctx context.Context) error {
			res, err := c.b.Move(ctx, core.MoveRequest{Queue: c.queue, To: core.StateCancelled, From: core.StatePending, Limit: 2})
			moved += res.Moved
			more = res.More
			return err
		})
	}
	if moved > jobs || failed == 0 && moved != jobs {
		c.Errorf("%v: %d of %d moved after %d failed calls", c.plan, moved, jobs, failed)
	}
	equal(c, "cancelled", fmt.Sprint(c.ids(core.StateCancelled)), "[j0 j1 j2 j3 j4]")
	equal(c, "statistics", c.totals(), core.DayStats{Cancelled: jobs})
	if _, err := c.direct.Group(c.ctx, c.queue, "g"); !errors.Is(err, core.ErrNotFound) {
		c.Errorf("%v: the group is left: %v", c.plan, err)
	}
}
