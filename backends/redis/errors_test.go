package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// A server that is full refuses to publish, as a whole, and lets workers go on.
func TestMemoryFull(t *testing.T) {
	server := testserver.Redis(t, testserver.Args("--maxmemory", "8mb", "--maxmemory-policy", "noeviction"))
	b := open(t, server.URL(), Options{})
	ctx := context.Background()
	body := make([]byte, 10_000)
	stored := 0
	var err error
	for err == nil {
		var jobs []core.NewJob
		for i := range 7 {
			jobs = append(jobs, core.NewJob{Queue: "q", Group: fmt.Sprint("g", i), Payload: body})
		}
		if _, err = b.Publish(ctx, core.PublishRequest{Jobs: jobs}); err == nil {
			stored += len(jobs)
		}
		if stored > 10_000 {
			t.Fatal("the server never gets full")
		}
	}
	wantError(t, err, core.ErrMisconfigured, "memory is full")
	if got := counts(t, b, "q")[core.StatePending]; got != int64(stored) {
		t.Fatalf("%d jobs are there, %d were acknowledged: a batch was stored in part", got, stored)
	}
	_, err = core.Publish(ctx, b, core.NewJob{Queue: "q", Delay: time.Hour, Dedup: core.Dedup{Key: "k"}})
	wantError(t, err, core.ErrMisconfigured, "memory is full")
	workWhileFull(t, b)
}

// A worker goes on, and so does a person, whatever comes first in the scripts: also
// with events, without groups, and with jobs that have ended.
func TestMemoryFullWithEvents(t *testing.T) {
	server := testserver.Redis(t)
	client := server.Client(t)
	for name, cfg := range map[string]core.QueueConfig{"plain": {}, "events": {EventTTL: time.Hour}} {
		for from, end := range map[core.State]core.Action{core.StateDead: core.Dead, core.StateCancelled: core.Cancel} {
			for _, to := range []core.State{core.StateDead, core.StateCancelled, core.StatePending, core.StateGone} {
				if from == to {
					continue
				}
				t.Run(fmt.Sprint(name, "/", from, " to ", to), func(t *testing.T) {
					b, ctx := open(t, server.URL(), Options{}), t.Context()
					queue := testserver.UniqueName(t)
					check(t, b.Configure(ctx, queue, cfg))
					put(t, b, core.NewJob{Queue: queue, ID: "ended", Dedup: core.Dedup{Key: "k"}})
					settle(t, b, take(t, b, queue), core.Outcome{Action: end})
					put(t, b, core.NewJob{Queue: queue, ID: "lone"})
					check(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
					defer func() { check(t, client.ConfigSet(context.Background(), "maxmemory", "0").Err()) }()
					if res := must[core.MoveResult](t)(b.Move(ctx, core.MoveRequest{Queue: queue, To: to, IDs: []string{"ended"}})); res.Moved != 1 {
						t.Errorf("moved: %+v", res)
					}
					settle(t, b, take(t, b, queue), core.Outcome{Action: core.Complete})
				})
			}
		}
	}
}

// workWhileFull does what a worker does until a publish is possible again.
func workWhileFull(t *testing.T, b *Backend) {
	t.Helper()
	ctx := context.Background()
	l := take(t, b, "q")
	if _, err := b.Extend(ctx, "q", []core.LeaseRef{l.LeaseRef}, time.Minute); err != nil {
		t.Fatalf("extend: %v", err)
	}
	if err := b.Save(ctx, l.LeaseRef, core.Patch{Result: []byte("r")}); err != nil {
		t.Fatalf("save: %v", err)
	}
	settle(t, b, l, core.Outcome{Action: core.Retry, Error: "failed", Delay: time.Hour})
	settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Dead, Error: "failed"})
	settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Snooze, Delay: time.Hour})
	administerWhileFull(t, b)
	for range 60 {
		settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Complete})
	}
	for {
		res, err := b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: 100, Lease: time.Minute})
		if err != nil {
			t.Fatalf("claim: %v", err)
		}
		if len(res.Leases) == 0 {
			break
		}
		for _, l := range res.Leases {
			settle(t, b, l, core.Outcome{Action: core.Complete})
		}
	}
	put(t, b, core.NewJob{Queue: "q", Payload: make([]byte, 10_000)})
}

// administerWhileFull does what a person may want to do just then.
func administerWhileFull(t *testing.T, b *Backend) {
	t.Helper()
	ctx := context.Background()
	l := take(t, b, "q")
	for what, act := range map[string]func() error{
		"pause":         func() error { _, err := b.PauseQueue(ctx, "q"); return err },
		"pause a group": func() error { return b.ActOnGroup(ctx, "q", "g6", core.PauseGroup) },
		"hold a group":  func() error { return b.ActOnGroup(ctx, "q", "g5", core.HoldGroup) },
		"cancel running": func() error {
			_, err := b.Move(ctx, core.MoveRequest{Queue: "q", To: core.StateCancelled, IDs: []string{l.JobID}})
			return err
		},
		"update": func() error {
			return b.Update(ctx, "q", l.JobID, core.Patch{SetHeaders: map[string]string{"h": "v"}}, 0)
		},
	} {
		if err := act(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := b.ResumeQueue(ctx, "q"); err != nil {
		t.Error(err)
	}
	for _, group := range []string{"g5", "g6"} {
		for _, act := range []core.GroupAct{core.ResumeGroup, core.ReleaseGroup} {
			if err := b.ActOnGroup(ctx, "q", group, act); err != nil {
				t.Error(err)
			}
		}
	}
	settle(t, b, l, core.Outcome{Action: core.Complete})
}

// A primary that becomes a replica under way refuses writes.
func TestDemoted(t *testing.T) {
	primary, other := testserver.Redis(t), testserver.Redis(t)
	b := open(t, primary.URL(), Options{})
	put(t, b, core.NewJob{Queue: "q"})
	host, port, _ := strings.Cut(other.Addr(), ":")
	if err := primary.Client(t).Do(context.Background(), "replicaof", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := core.Publish(context.Background(), b, core.NewJob{Queue: "q"})
	wantError(t, err, core.ErrMisconfigured, "read-only replica")
}

func TestReplyErrors(t *testing.T) {
	for text, kind := range map[string]error{
		"LOADING Redis is loading the dataset in memory":                                    core.ErrUnavailable,
		"CLUSTERDOWN The cluster is down":                                                   core.ErrUnavailable,
		"MOVED 3999 127.0.0.1:6381":                                                         core.ErrMisconfigured,
		"CROSSSLOT Keys in request don't hash to the same slot":                             core.ErrMisconfigured,
		"NOPERM this user has no permissions to run the 'evalsha' command":                  core.ErrMisconfigured,
		"OOM command not allowed when used memory > 'maxmemory'.":                           core.ErrMisconfigured,
		"MISCONF Redis is configured to save RDB snapshots":                                 core.ErrMisconfigured,
		"NOREPLICAS Not enough good replicas to write.":                                     core.ErrUnavailable,
		"ERR max number of clients reached":                                                 core.ErrUnavailable,
		"ERR DB index is out of range":                                                      core.ErrMisconfigured,
		"ERR This instance has cluster support disabled":                                    core.ErrMisconfigured,
		"BUSY Redis is busy running a script.":                                              core.ErrUnavailable,
		"ERR Error running script (call to f_1): @user_script:26: -OOM command not allowed": core.ErrMisconfigured, // Redis 6.2
	} {
		err := storeError("publish", redisError(text))
		if !errors.Is(err, kind) {
			t.Errorf("%q: got %v, want %v", text, err, kind)
		}
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not tell %q", err, text)
		}
	}
	err := storeError("publish", redisError("ERR something new"))
	if errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrMisconfigured) {
		t.Errorf("an unknown error counts as known: %v", err)
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")

// Somebody else's data under one of our names is told, not overwritten.
func TestForeignData(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	if err := server.Client(t).Set(context.Background(), b.queueKey("q")+"m", "mine", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := core.Publish(context.Background(), b, core.NewJob{Queue: "q"})
	wantError(t, err, core.ErrMisconfigured, "somebody else's data")
}

// A server that has forgotten the scripts is given them again.
func TestScriptsForgotten(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	put(t, b, core.NewJob{Queue: "a@1"})
	if err := server.Client(t).ScriptFlush(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	jobs := []core.NewJob{{Queue: "a@1"}, {Queue: "b"}, {Queue: "c"}, {Queue: "a@2"}} // three families, pipelined
	for i, r := range must[[]core.PublishResult](t)(b.Publish(context.Background(), core.PublishRequest{Jobs: jobs})) {
		if r.Err != nil || r.Seq == 0 {
			t.Errorf("job %d: %+v", i, r)
		}
		if got := counts(t, b, jobs[i].Queue)[core.StatePending]; got < 1 || got > 2 {
			t.Errorf("queue %q has %d jobs", jobs[i].Queue, got)
		}
	}
}

func TestClosed(t *testing.T) {
	b, err := Open(context.Background(), testserver.SharedRedis(t).URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	wakes := must[<-chan core.Wake](t)(b.Wakes(context.Background(), "q"))
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, open := <-wakes; open {
		t.Error("a hint after Close")
	}
	for name, err := range map[string]error{
		"Publish": func() error { _, err := core.Publish(context.Background(), b, core.NewJob{Queue: "q"}); return err }(),
		"Wakes":   func() error { _, err := b.Wakes(context.Background(), "q"); return err }(),
		"Settle":  func() error { _, err := b.Settle(context.Background(), "q", nil); return err }(),
	} {
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
