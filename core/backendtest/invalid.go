package backendtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

var invalidTests = []test{
	{"Publish", testInvalidPublish},
	{"PublishBatch", testInvalidBatch},
	{"Lease", testInvalidLease},
	{"Administer", testInvalidAdminister},
	{"Configure", testInvalidConfig},
	{"Inspect", testInvalidInspect},
	{"Records", testInvalidRecords},
	{"Bindings", testInvalidBindings},
	{"QueueNames", testInvalidQueueNames},
	{"NotFoundIsNotInvalid", testNotInvalid},
}

// wantInvalid does what breaks a rule: it must answer an *InvalidError about
// this field, and nothing of it may be done.
func (f *fixture) wantInvalid(what, field string, do func() error) {
	f.Helper()
	f.unchanged(what, func() {
		f.Helper()
		err := do()
		var invalid *core.InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, core.ErrInvalid) {
			f.Fatalf("%s: got error %v, want an *InvalidError", what, err)
		}
		if field != "" && invalid.Field != field {
			f.Fatalf("%s: the error is about %q, want %q: %v", what, invalid.Field, field, err)
		}
	})
}

// badNames are names that no part of a job may have.
var badNames = map[string]string{
	"a NUL byte": "a\x00b", "a newline": "a\nb", "a tab": "\t", "a C1 control": "a\u0085b", "DEL": "a\x7f",
	"broken UTF-8": "a\xff", "a cut rune": "日本"[:4],
}

// badJobs are jobs that break a rule, by what is wrong, with the error's field.
func badJobs(l core.Limits) map[string]struct {
	field string
	job   core.NewJob
} {
	limit := l.MaxPayload
	if limit == 0 {
		limit = core.DefaultMaxPayload
	}
	type bad = struct {
		field string
		job   core.NewJob
	}
	year := func(y int) time.Time { return time.Date(y, 6, 1, 0, 0, 0, 0, time.UTC) }
	jobs := map[string]bad{
		"long id":           {"job id", core.NewJob{ID: strings.Repeat("x", core.MaxIDLength+1)}},
		"long kind":         {"kind", core.NewJob{Kind: strings.Repeat("x", core.MaxKindLength+1)}},
		"long group":        {"group", core.NewJob{Group: strings.Repeat("x", core.MaxGroupName+1)}},
		"blank group":       {"group", core.NewJob{Group: "  "}},
		"blank id":          {"job id", core.NewJob{ID: "  "}},
		"blank kind":        {"kind", core.NewJob{Kind: " "}},
		"blank dedup key":   {"dedup key", core.NewJob{Dedup: core.Dedup{Key: "  "}}},
		"wide blank id":     {"job id", core.NewJob{ID: "\u3000"}},
		"long dedup key":    {"dedup key", core.NewJob{Dedup: core.Dedup{Key: strings.Repeat("x", core.MaxDedupKey+1)}}},
		"large payload":     {"payload", core.NewJob{Payload: make([]byte, limit+1)}},
		"large headers":     {"headers", core.NewJob{Headers: map[string]string{"h": strings.Repeat("x", core.MaxHeaderBytes)}}},
		"unnamed header":    {"header", core.NewJob{Headers: map[string]string{"": "x"}}},
		"header with NUL":   {"header", core.NewJob{Headers: map[string]string{"h": "\x00"}}},
		"header name NUL":   {"header", core.NewJob{Headers: map[string]string{"h\x00": "x"}}},
		"header not UTF-8":  {"header", core.NewJob{Headers: map[string]string{"h": "\xff"}}},
		"low priority":      {"priority", core.NewJob{Priority: -1}},
		"high priority":     {"priority", core.NewJob{Priority: core.MaxPriority + 1}},
		"negative delay":    {"delay", core.NewJob{Delay: -1}},
		"long delay":        {"delay", core.NewJob{Delay: core.MaxDelay + 1}},
		"delay and time":    {"delay", core.NewJob{Delay: 1, RunAt: year(2100)}},
		"early run time":    {"run time", core.NewJob{RunAt: year(1969)}},
		"late run time":     {"run time", core.NewJob{RunAt: year(2201)}},
		"early deadline":    {"deadline", core.NewJob{Deadline: year(1969)}},
		"late deadline":     {"deadline", core.NewJob{Deadline: year(2201)}},
		"negative timeout":  {"timeout", core.NewJob{Timeout: -1}},
		"retention":         {"retention", core.NewJob{Retention: -2}},
		"long retention":    {"dedup window or retention", core.NewJob{Retention: core.MaxDelay + 1}},
		"negative window":   {"dedup window", core.NewJob{Dedup: core.Dedup{Key: "k", Window: -1}}},
		"long window":       {"dedup window or retention", core.NewJob{Dedup: core.Dedup{Key: "k", Window: core.MaxDelay + 1}}},
		"negative attempts": {"max attempts", core.NewJob{MaxAttempts: -2}},
		"many attempts":     {"max attempts", core.NewJob{MaxAttempts: core.MostAttempts + 1}},
		"failure policy":    {"failure policy", core.NewJob{OnFailure: core.Skip + 1}},
		"exhausted policy":  {"exhausted policy", core.NewJob{OnExhausted: core.Hold + 1}},
		"schedule policy":   {"schedule policy", core.NewJob{Scheduling: core.Strict + 1}},
		"dedup conflict":    {"dedup conflict", core.NewJob{Dedup: core.Dedup{Key: "k", OnConflict: core.ReplacePending + 1}}},
		"dedup states":      {"dedup states", core.NewJob{Dedup: core.Dedup{Key: "k", While: 1 << 12}}},
	}
	for what, name := range badNames {
		jobs["id with "+what] = bad{"job id", core.NewJob{ID: name}}
		jobs["kind with "+what] = bad{"kind", core.NewJob{Kind: name}}
		jobs["group with "+what] = bad{"group", core.NewJob{Group: name}}
		jobs["dedup key with "+what] = bad{"dedup key", core.NewJob{Dedup: core.Dedup{Key: name}}}
	}
	return jobs
}

// A job that breaks a rule stops the whole batch.
func testInvalidPublish(f *fixture) {
	f.add("g", "a")
	f.refusing("an invalid publish", func() {
		for what, bad := range badJobs(f.h.Limits) {
			bad.job.Queue = f.queue
			f.wantInvalid(what, bad.field, func() error {
				_, err := f.b.Publish(f.ctx, core.PublishRequest{Jobs: []core.NewJob{bad.job}})
				return err
			})
			f.wantInvalid("a batch with "+what, bad.field, func() error {
				_, err := f.b.Publish(f.ctx, core.PublishRequest{Jobs: []core.NewJob{
					{Queue: f.queue, ID: "before"}, bad.job, {Queue: f.queue, ID: "after"},
				}})
				return err
			})
		}
	})
}

func testInvalidBatch(f *fixture) {
	f.add("g", "a")
	publish := func(req core.PublishRequest) func() error {
		return func() error { _, err := f.b.Publish(f.ctx, req); return err }
	}
	large := make([]core.NewJob, core.MaxPublishBatch+1)
	for i := range large {
		large[i].Queue = f.queue
	}
	f.wantInvalid("a large batch", "batch", publish(core.PublishRequest{Jobs: large}))
	f.wantInvalid("two families", "queue", publish(core.PublishRequest{
		AllOrNothing: true, Jobs: []core.NewJob{{Queue: f.queue}, {Queue: f.queue + "x"}},
	}))
	f.wantInvalid("a fallback of another family", "queue", publish(core.PublishRequest{
		Jobs: []core.NewJob{{Topic: f.queue + "x", Queue: f.queue}},
	}))
	f.wantInvalid("no queue", "queue", publish(core.PublishRequest{Jobs: []core.NewJob{{}}}))
}

func testInvalidLease(f *fixture) {
	f.add("g", "a", "b")
	l := f.claim("a")
	f.add("h", "c") // may be claimed all the time
	good := core.ClaimRequest{Queue: f.queue, Max: 1, Lease: hour}
	claim := func(change func(r *core.ClaimRequest)) func() error {
		req := good
		change(&req)
		return func() error { _, err := f.b.Claim(f.ctx, req); return err }
	}
	f.refusing("an invalid call on leases", func() {
		f.wantInvalid("claim of 0", "claim size", claim(func(r *core.ClaimRequest) { r.Max = 0 }))
		f.wantInvalid("claim of -1", "claim size", claim(func(r *core.ClaimRequest) { r.Max = -1 }))
		f.wantInvalid("large claim", "claim size", claim(func(r *core.ClaimRequest) { r.Max = core.MaxClaimBatch + 1 }))
		f.wantInvalid("low floor", "priority", claim(func(r *core.ClaimRequest) { r.MinPriority = -1 }))
		f.wantInvalid("high floor", "priority", claim(func(r *core.ClaimRequest) { r.MinPriority = core.MaxPriority + 1 }))
		f.wantInvalid("no lease", "lease", claim(func(r *core.ClaimRequest) { r.Lease = 0 }))
		f.wantInvalid("short lease", "lease", claim(func(r *core.ClaimRequest) { r.Lease = core.MinLease - 1 }))
		f.wantInvalid("long lease", "lease", claim(func(r *core.ClaimRequest) { r.Lease = core.MaxDelay + 1 }))
		f.wantInvalid("owner", "owner", claim(func(r *core.ClaimRequest) { r.Owner = "a\nb" }))
		f.wantInvalid("long owner", "owner", claim(func(r *core.ClaimRequest) { r.Owner = strings.Repeat("x", core.MaxOwnerLength+1) }))

		settle := func(change func(o *core.Outcome)) func() error {
			bad := core.Outcome{Lease: l.LeaseRef, Action: core.Retry}
			change(&bad)
			outcomes := []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete}, bad}
			return func() error { _, err := f.b.Settle(f.ctx, f.queue, outcomes); return err }
		}
		f.wantInvalid("no action", "action", settle(func(o *core.Outcome) { o.Action = 0 }))
		f.wantInvalid("unknown action", "action", settle(func(o *core.Outcome) { o.Action = core.Cancel + 1 }))
		f.wantInvalid("negative delay", "delay", settle(func(o *core.Outcome) { o.Delay = -1 }))
		f.wantInvalid("long delay", "delay", settle(func(o *core.Outcome) { o.Delay = core.MaxDelay + 1 }))
		f.wantInvalid("other queue", "lease", settle(func(o *core.Outcome) { o.Lease.Queue = "other" }))
		large := make([]core.Outcome, core.MaxSettleBatch+1)
		for i := range large {
			large[i] = core.Outcome{Lease: l.LeaseRef, Action: core.Complete}
		}
		f.wantInvalid("large settle", "batch", func() error { _, err := f.b.Settle(f.ctx, f.queue, large); return err })
		for field, patch := range f.badPatches() {
			f.wantInvalid("settle with bad "+field, field, settle(func(o *core.Outcome) { o.Patch = patch }))
			f.wantInvalid("save with bad "+field, field, func() error { return f.b.Save(f.ctx, l.LeaseRef, patch) })
			f.wantInvalid("update with bad "+field, field, func() error { return f.b.Update(f.ctx, f.queue, "a", patch, 0) })
		}

		extend := func(d time.Duration, refs ...core.LeaseRef) func() error {
			return func() error { _, err := f.b.Extend(f.ctx, f.queue, refs, d); return err }
		}
		f.wantInvalid("short extension", "lease", extend(core.MinLease-1, l.LeaseRef))
		f.wantInvalid("long extension", "lease", extend(core.MaxDelay+1, l.LeaseRef))
		f.wantInvalid("extension in another queue", "lease", extend(hour, l.LeaseRef, core.LeaseRef{Queue: "other"}))
		f.wantInvalid("large extension", "batch", extend(hour, slices.Repeat([]core.LeaseRef{l.LeaseRef}, core.MaxSettleBatch+1)...))
	})
	f.complete(l)
}

// badPatches are patches that break a rule, by the error's field.
func (f *fixture) badPatches() map[string]core.Patch {
	limit := f.h.Limits.MaxPayload
	if limit == 0 {
		limit = core.DefaultMaxPayload
	}
	return map[string]core.Patch{
		"payload": {Payload: make([]byte, limit+1)},
		"result":  {Result: make([]byte, limit+1)},
		"header":  {SetHeaders: map[string]string{"": "x"}},
		"headers": {SetHeaders: map[string]string{"h": strings.Repeat("x", core.MaxHeaderBytes)}},
	}
}

func testInvalidAdminister(f *fixture) {
	f.add("g", "a")
	move := func(req core.MoveRequest) func() error {
		req.Queue = f.queue
		return func() error { _, err := f.b.Move(f.ctx, req); return err }
	}
	f.refusing("an invalid act", func() {
		for _, to := range []core.State{core.StateUnknown, core.StateScheduled, core.StateRunning, core.StateRetrying, core.StateCompleted, 99} {
			f.wantInvalid(fmt.Sprint("target ", to), "target state", move(core.MoveRequest{To: to, IDs: []string{"a"}}))
		}
		for _, from := range []core.State{core.StateUnknown, core.StateGone, 99} {
			f.wantInvalid(fmt.Sprint("source ", from), "source state", move(core.MoveRequest{To: core.StateGone, From: from}))
		}
		for from, to := range map[core.State]core.State{
			core.StatePending: core.StatePending, core.StateDead: core.StateDead, core.StateRunning: core.StatePending,
		} {
			f.wantInvalid(fmt.Sprint("from ", from, " to ", to), "target state", move(core.MoveRequest{To: to, From: from}))
		}
		for _, limit := range []int{-1, core.MaxPage + 1} {
			f.wantInvalid("move limit", "limit", move(core.MoveRequest{To: core.StateGone, From: core.StatePending, Limit: limit}))
			f.wantInvalid("purge limit", "limit", func() error { _, err := f.b.Purge(f.ctx, f.queue, limit); return err })
		}
		f.wantInvalid("many ids", "batch", move(core.MoveRequest{To: core.StateGone, IDs: slices.Repeat([]string{"a"}, core.MaxPage+1)}))
		act := func(group string, act core.GroupAct) func() error {
			return func() error { return f.b.ActOnGroup(f.ctx, f.queue, group, act) }
		}
		f.wantInvalid("no act", "", act("g", 0))
		f.wantInvalid("unknown act", "", act("g", core.SkipHead+1))
		for what, group := range withBadNames(core.MaxGroupName) {
			f.wantInvalid("group with "+what, "group", act(group, core.PauseGroup))
		}
	})
}

// withBadNames are names that are never allowed, and the empty, the blank and
// the one that is longer than limit.
func withBadNames(limit int) map[string]string {
	all := maps.Clone(badNames)
	all["nothing in it"], all["only blanks"], all["too much in it"] = "", " \u00a0", strings.Repeat("x", limit+1)
	return all
}

func testInvalidConfig(f *fixture) {
	f.add("g", "a")
	f.refusing("an invalid configuration", func() {
		for field, cfg := range map[string]core.QueueConfig{
			"head start":          {HeadStart: -2},
			"completed retention": {CompletedRetention: -time.Second},
			"dead retention":      {DeadRetention: core.MaxDelay + 1},
			"cancelled retention": {CancelledRetention: -2},
			"result time to live": {ResultTTL: core.MaxDelay + 1},
			"event time to live":  {EventTTL: -2},
			"max attempts":        {MaxAttempts: -2},
			"failure policy":      {OnFailure: core.Skip + 1},
			"exhausted policy":    {OnExhausted: core.Hold + 1},
			"schedule policy":     {Scheduling: core.Strict + 1},
		} {
			f.wantInvalid(field, field, func() error { return f.b.Configure(f.ctx, f.queue, cfg) })
		}
	})
}

func testInvalidInspect(f *fixture) {
	f.add("g", "a")
	jobs := func(filter core.JobFilter) func() error {
		filter.Queue = f.queue
		return func() error { _, err := f.b.Jobs(f.ctx, filter); return err }
	}
	f.refusing("an invalid question", func() {
		f.wantInvalid("neither state nor group", "state", jobs(core.JobFilter{}))
		f.wantInvalid("the state gone", "state", jobs(core.JobFilter{State: core.StateGone}))
		for _, limit := range []int{-1, core.MaxPage + 1} {
			f.wantInvalid("limit of jobs", "limit", jobs(core.JobFilter{State: core.StateDead, Limit: limit}))
			f.wantInvalid("limit of groups", "limit", func() error {
				_, err := f.b.Groups(f.ctx, core.GroupFilter{Queue: f.queue, Limit: limit})
				return err
			})
			f.wantInvalid("limit of events", "limit", func() error {
				_, err := f.b.Events(f.ctx, core.EventFilter{Queue: f.queue, Limit: limit})
				return err
			})
			f.wantInvalid("limit of records", "limit", func() error {
				_, err := f.b.Records(f.ctx, core.RecordFilter{Space: f.queue, Limit: limit})
				return err
			})
		}
		for what, name := range withBadNames(core.MaxGroupName) {
			f.wantInvalid("group with "+what, "group", func() error { _, err := f.b.Group(f.ctx, f.queue, name); return err })
		}
	})
}

func testInvalidRecords(f *fixture) {
	f.add("g", "a")
	space := uniqueName()
	limit := f.h.Limits.MaxPayload
	if limit == 0 {
		limit = core.DefaultMaxPayload
	}
	for field, put := range map[string]core.PutRecord{
		"time to live": {TTL: -1}, "condition": {When: core.IfVersion + 1}, "value": {Value: make([]byte, limit+1)},
	} {
		put.Space, put.Key = space, "k"
		f.wantInvalid("a record with bad "+field, field, func() error { _, err := f.b.PutRecord(f.ctx, put); return err })
	}
	f.wantInvalid("a long time to live", "time to live", func() error {
		_, err := f.b.PutRecord(f.ctx, core.PutRecord{Space: space, Key: "k", TTL: core.MaxDelay + 1})
		return err
	})
	f.wantInvalid("a counter that lives less than not", "", func() error {
		_, err := f.b.Increment(f.ctx, space, "k", 1, -1)
		return err
	})
	for what, name := range withBadNames(core.MaxRecordName) {
		for field, pair := range map[string][2]string{"space": {name, "k"}, "key": {space, name}} {
			for method, do := range map[string]func() error{
				"PutRecord": func() error {
					_, err := f.b.PutRecord(f.ctx, core.PutRecord{Space: pair[0], Key: pair[1]})
					return err
				},
				"GetRecord":    func() error { _, err := f.b.GetRecord(f.ctx, pair[0], pair[1]); return err },
				"DeleteRecord": func() error { return f.b.DeleteRecord(f.ctx, pair[0], pair[1], 0) },
				"Increment":    func() error { _, err := f.b.Increment(f.ctx, pair[0], pair[1], 1, 0); return err },
			} {
				if err := do(); !errors.Is(err, core.ErrInvalid) {
					f.Errorf("%s with %s in its %s: got error %v, want ErrInvalid", method, what, field, err)
				}
			}
		}
	}
	f.wantNoRecord(space, "k")
	equal(f, "records", len(f.records(space, 0)), 0)
}

func testInvalidBindings(f *fixture) {
	f.add("g", "a")
	f.refusing("an invalid binding", func() {
		for name, do := range map[string]func(topic, queue string) error{
			"Bind":   func(topic, queue string) error { return f.b.Bind(f.ctx, topic, queue) },
			"Unbind": func(topic, queue string) error { return f.b.Unbind(f.ctx, topic, queue) },
		} {
			f.wantInvalid(name+" of another family", "queue", func() error { return do(f.queue+"x", f.queue) })
			for what, bad := range withBadNames(core.MaxQueueName) {
				f.wantInvalid(fmt.Sprintf("%s of a topic with %s", name, what), "topic", func() error { return do(bad, f.queue) })
				f.wantInvalid(fmt.Sprintf("%s of a queue with %s", name, what), "queue", func() error { return do(f.queue, bad) })
			}
		}
	})
	equal(f, "bindings", f.bindings(f.queue), []string{})
}

// Every method checks the name of the queue.
func testInvalidQueueNames(f *fixture) {
	for _, c := range queueCalls {
		for what, name := range withBadNames(core.MaxQueueName) {
			if err := c.do(f.ctx, f.b, name); !errors.Is(err, core.ErrInvalid) {
				f.Errorf("%s of a queue with %s: got error %v, want ErrInvalid", c.name, what, err)
			}
		}
	}
	equal(f, "queues", f.mine("a\n"), []string{})
}

// Names that are allowed and of nothing are not found, not invalid.
func testNotInvalid(f *fixture) {
	f.add("g", "a")
	_, err := f.b.Job(f.ctx, f.queue, "nobody")
	f.wantErr(err, core.ErrNotFound)
	_, err = f.b.Group(f.ctx, f.queue, "nobody")
	f.wantErr(err, core.ErrNotFound)
	f.wantErr(f.b.Update(f.ctx, f.queue, "nobody", core.Patch{}, 0), core.ErrNotFound)
	f.wantErr(f.b.ActOnGroup(f.ctx, f.queue, "nobody", core.SkipHead), core.ErrNotFound)
	f.wantErr(f.b.DeleteRecord(f.ctx, uniqueName(), "k", 0), core.ErrNotFound)
}
