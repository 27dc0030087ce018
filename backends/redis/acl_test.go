package rotaredis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// openWithoutChannels opens a backend as a user who may do all but use channels,
// which is how Redis 7 makes new users.
func openWithoutChannels(t *testing.T, opts Options) *Backend {
	t.Helper()
	server := testserver.Redis(t)
	if err := server.Client(t).Do(t.Context(), "acl", "setuser", "nochan", "on", ">pw", "~*", "resetchannels", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	return open(t, "redis://nochan:pw@"+server.Addr(), opts)
}

// A hint that may not be sent must not end a script in the middle.
func TestScriptsEndWithoutChannelRights(t *testing.T) {
	b := openWithoutChannels(t, Options{})
	ctx := context.Background()
	if _, err := b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute}); err != nil { // somebody waits
		t.Fatal(err)
	}
	put(t, b, core.NewJob{Queue: "q", Group: "g", ID: "1"})
	put(t, b, core.NewJob{Queue: "q", Group: "g", ID: "2", Dedup: core.Dedup{Key: "k"}})
	res := settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Complete, Patch: core.Patch{Result: []byte("r")}})
	if res.Err != nil || res.State != core.StateCompleted {
		t.Fatalf("settled as %s: %v", res.State, res.Err)
	}
	l := take(t, b, "q")
	if l.JobID != "2" {
		t.Fatalf("claimed %s", l.JobID)
	}
	if _, err := b.Move(ctx, core.MoveRequest{Queue: "q", To: core.StateCancelled, IDs: []string{"2"}}); err != nil {
		t.Fatal(err)
	}
	settle(t, b, l, core.Outcome{Action: core.Release})
	for _, act := range []func(context.Context, string) (bool, error){b.PauseQueue, b.ResumeQueue} {
		if done, err := act(ctx, "q"); err != nil || !done {
			t.Fatalf("%v, %v", done, err)
		}
	}
	got := counts(t, b, "q")
	if got[core.StateCompleted] != 1 || got[core.StateCancelled] != 1 || got[core.StatePending] != 0 {
		t.Errorf("%v", got)
	}
}

// Who can not be woken learns of it, and polls.
func TestWakesWithoutChannelRights(t *testing.T) {
	var log logged
	b := openWithoutChannels(t, Options{Logger: log.logger()})
	_, err := b.Wakes(context.Background(), "q")
	wantError(t, err, core.ErrMisconfigured, "channels")
	if !strings.Contains(log.String(), "wake-ups do not come in") {
		t.Errorf("logged: %s", log.String())
	}
	put(t, b, core.NewJob{Queue: "q", ID: "1"})
	l := take(t, b, "q")
	settled := make(chan error, 1)
	go func() {
		res, err := b.Settle(context.Background(), "q", []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete, Patch: core.Patch{Result: []byte("r")}}})
		if err == nil {
			err = res[0].Err
		}
		settled <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job, err := core.Wait(ctx, b, "q", "1")
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	if err != nil || string(job.Result) != "r" {
		t.Fatalf("%+v, %v", job, err)
	}
}

func TestWakesWithoutServer(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	server.Kill()
	_, err := b.Wakes(context.Background(), "q")
	wantError(t, err, core.ErrUnavailable, "")
	server.Restart()
}
