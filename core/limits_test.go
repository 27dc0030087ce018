package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
)

// A nil backend, also one inside an interface, is an error and no panic.
func TestNilBackends(t *testing.T) {
	for what, b := range map[string]core.Backend{"nil": nil, "a nil pointer": (*memory.Backend)(nil)} {
		_, published := core.Publish(t.Context(), b, core.NewJob{Queue: "q"})
		_, waited := core.Wait(t.Context(), b, "q", "id")
		var followed error
		for _, err := range core.Follow(t.Context(), b, core.EventFilter{Queue: "q"}) {
			followed = err
		}
		for name, err := range map[string]error{"Publish": published, "Wait": waited, "Follow": followed} {
			var invalid *core.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%s with %s: got error %v, want an *InvalidError", name, what, err)
			}
		}
	}
}

func TestLimitsOutOfBounds(t *testing.T) {
	for _, limit := range []int{-1, core.MostPayload + 1} {
		l := core.Limits{MaxPayload: limit}
		b := memory.New(memory.Options{Limits: l})
		_, published := core.Publish(t.Context(), b, core.NewJob{Queue: "q"})
		_, looked := b.Queues(t.Context())
		for name, err := range map[string]error{
			"Publish": published, "Queues": looked,
			"a publish":  core.PublishRequest{Jobs: []core.NewJob{{Queue: "q"}}}.Validate(l),
			"a patch":    core.Patch{}.Validate(l),
			"a record":   core.PutRecord{Space: "s", Key: "k"}.Validate(l),
			"the limits": l.Validate(),
		} {
			var invalid *core.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "limit of payloads" {
				t.Errorf("%s under a limit of %d: got error %v", name, limit, err)
			}
		}
	}
}

// What Publish takes as a name is what CheckID and its neighbours take.
func TestOneRuleForNames(t *testing.T) {
	for _, name := range []string{" ", "\u00a0", "\u3000", "a", " a ", "a b", "\n", "a\x00", "\xff", strings.Repeat("x", core.MaxIDLength), strings.Repeat("x", core.MaxIDLength+1)} {
		want := core.CheckID(name) == nil
		for what, job := range map[string]core.NewJob{
			"id": {ID: name}, "group": {Group: name}, "dedup key": {Dedup: core.Dedup{Key: name}},
		} {
			job.Queue = "q"
			err := core.PublishRequest{Jobs: []core.NewJob{job}}.Validate(core.Limits{})
			if (err == nil) != want {
				t.Errorf("%s %q: %v, but CheckID says %v", what, name, err, core.CheckID(name))
			}
		}
	}
}

// Errors about a size are one sentence, without a quotation.
func TestTextsAboutSizes(t *testing.T) {
	publish := func(jobs ...core.NewJob) error { return core.PublishRequest{Jobs: jobs}.Validate(core.Limits{}) }
	for want, err := range map[string]error{
		"invalid argument: payload of 1048577 bytes is longer than 1048576 bytes": publish(core.NewJob{Queue: "q", Payload: make([]byte, core.DefaultMaxPayload+1)}),
		"invalid argument: headers of 65537 bytes are longer than 65536 bytes":    publish(core.NewJob{Queue: "q", Headers: map[string]string{"h": strings.Repeat("x", core.MaxHeaderBytes)}}),
		"invalid argument: batch of 10001 jobs has more than 10000":               publish(make([]core.NewJob, core.MaxPublishBatch+1)...),
		"invalid argument: batch of 10001 outcomes has more than 10000":           core.ValidateOutcomes("q", make([]core.Outcome, core.MaxSettleBatch+1), core.Limits{}),
		"invalid argument: batch of 1001 ids has more than 1000":                  core.MoveRequest{Queue: "q", To: core.StateGone, IDs: make([]string, core.MaxPage+1)}.Validate(),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
