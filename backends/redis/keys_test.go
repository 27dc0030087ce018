package rotaredis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// hashTag is the part of a key that a cluster hashes.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !found || !closed || tag == "" {
		return key
	}
	return tag
}

// oddNames are names of queues that could confuse keys.
var oddNames = []string{
	"q", "q:j", "q:", "a{b}c", "a}b{c", "{}", "{", "}", "%7B", "%", "@", "@x", "a@b", "a@b@c", "a:b@c{d}", "ä", "a b",
}

// No two queues share a prefix, no prefix is the start of another, and the queues
// of a family have one hash tag.
func TestKeysDoNotCollide(t *testing.T) {
	b := &Backend{opts: Options{}.withDefaults()}
	var prefixes []string
	for _, name := range oddNames {
		key := b.queueKey(name)
		if tag := hashTag(key); tag == key || strings.ContainsAny(tag, "{}") || tag != hashTag(b.familyKey(core.Family(name))) {
			t.Errorf("queue %q has key %q with hash tag %q, its family %q", name, key, tag, b.familyKey(core.Family(name)))
		}
		for i, other := range prefixes {
			if strings.HasPrefix(key, other) || strings.HasPrefix(other, key) {
				t.Errorf("queues %q and %q have keys %q and %q", name, oddNames[i], key, other)
			}
		}
		prefixes = append(prefixes, key)
	}
}

// Queues, groups, ids and keys of any name work, also on a cluster.
func TestOddNames(t *testing.T) {
	cluster := testserver.RedisCluster(t)
	b, err := New(t.Context(), cluster.Client(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, queue := range oddNames {
		name := oddNames[len(oddNames)-1-i]
		put(t, b, core.NewJob{Queue: queue, Group: name, ID: name, Kind: name, Dedup: core.Dedup{Key: name}})
		l := take(t, b, queue)
		if l.Group != name || l.JobID != name || l.Job.Kind != name || l.Job.DedupKey != name {
			t.Errorf("queue %q: %+v", queue, l)
		}
		if r := settle(t, b, l, core.Outcome{Action: core.Dead}); r.State != core.StateDead {
			t.Errorf("queue %q: %+v", queue, r)
		}
		put(t, b, core.NewJob{Queue: queue, Topic: core.Family(queue) + "@topic"})
		if err := b.Bind(t.Context(), core.Family(queue)+"@topic", queue); err != nil {
			t.Fatal(err)
		}
		if res := put(t, b, core.NewJob{Topic: core.Family(queue) + "@topic"}); !slices.Equal(res.Queues, []string{queue}) {
			t.Errorf("queue %q: published to %q", queue, res.Queues)
		}
		if err := b.Unbind(t.Context(), core.Family(queue)+"@topic", queue); err != nil {
			t.Fatal(err)
		}
		must[core.Record](t)(b.PutRecord(t.Context(), core.PutRecord{Space: queue, Key: name}))
	}
	queues := must[[]string](t)(b.Queues(t.Context()))
	if want := slices.Sorted(slices.Values(oddNames)); !slices.Equal(queues, want) {
		t.Errorf("queues %q, want %q", queues, want)
	}
}

// keysOf gives the short names of the keys of a queue.
func keysOf(t *testing.T, b *Backend, queue string) []string {
	t.Helper()
	var keys []string
	for _, key := range must[[]string](t)(b.client.Keys(context.Background(), "*").Result()) {
		if short, ok := strings.CutPrefix(key, b.queueKey(queue)); ok && !strings.HasPrefix(short, "n:") {
			keys = append(keys, short)
		}
	}
	slices.Sort(keys)
	return keys
}

// Whatever happened to its jobs, an empty queue has its hash and its counters.
func TestNothingStays(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	ctx := t.Context()
	config := core.QueueConfig{DeadRetention: core.None, CancelledRetention: core.None, MaxAttempts: 3}
	if err := b.Configure(ctx, "q", config); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		job := core.NewJob{Queue: "q", Priority: i % 5, Headers: map[string]string{"a": "b"}}
		if i%4 > 0 {
			job.Group = fmt.Sprint("g", i%7)
		}
		if i%3 == 0 {
			job.Dedup = core.Dedup{Key: fmt.Sprint("k", i)}
		}
		if i%5 == 0 {
			job.Delay = time.Millisecond
		}
		put(t, b, job)
	}
	actions := []core.Action{core.Complete, core.Retry, core.Release, core.Snooze, core.Dead, core.Cancel}
	for i := 0; len(counts(t, b, "q")) > 0; i++ {
		res := must[core.ClaimResult](t)(b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: 3, Lease: time.Minute}))
		for k, l := range res.Leases {
			o := core.Outcome{Action: actions[(i+k)%len(actions)], Error: "e", Delay: time.Millisecond}
			o.Patch.SetHeaders = map[string]string{"x": "y"}
			settle(t, b, l, o)
		}
	}
	days := keysOf(t, b, "q")
	want := []string{"c", "m"}
	if got := slices.DeleteFunc(days, func(k string) bool { return strings.HasPrefix(k, "d:") }); !slices.Equal(got, want) {
		t.Errorf("keys of the empty queue: %q, want %q", got, want)
	}
	if err := b.DeleteQueue(ctx, "q", false); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(t, b, "q"); len(got) > 0 {
		t.Errorf("keys of the deleted queue: %q", got)
	}
}

// A queue that takes several steps to delete leaves nothing either.
func TestDeleteLargeQueue(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	ctx := t.Context()
	if err := b.Configure(ctx, "q", core.QueueConfig{CompletedRetention: time.Hour, EventTTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	publishAll(t, b, grouped("q", 2500, 300, 10), 1000)
	publishAll(t, b, grouped("q", 700, 0, 10), 1000)
	for i := range 30 {
		put(t, b, core.NewJob{Queue: "q", Group: fmt.Sprint("late", i), Delay: time.Hour, Dedup: core.Dedup{Key: fmt.Sprint(i)}})
		if err := b.ActOnGroup(ctx, "q", fmt.Sprintf("group-%06d", i), core.PauseGroup); err != nil {
			t.Fatal(err)
		}
	}
	res := must[core.ClaimResult](t)(b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: 200, Lease: time.Minute}))
	for _, l := range res.Leases[:100] {
		settle(t, b, l, core.Outcome{Action: core.Complete})
	}
	wantError(t, b.DeleteQueue(ctx, "q", false), core.ErrQueueNotEmpty, "unfinished jobs")
	if err := b.DeleteQueue(ctx, "q", true); err != nil {
		t.Fatal(err)
	}
	if got := keysOf(t, b, "q"); len(got) > 0 {
		t.Errorf("keys of the deleted queue: %q", got)
	}
	if r := settle(t, b, res.Leases[150], core.Outcome{Action: core.Complete}); r.Err == nil {
		t.Error("a lease outlived its queue")
	}
	wantError(t, b.DeleteQueue(ctx, "q", true), core.ErrNotFound, "q")
}
