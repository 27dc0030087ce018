package rotawatermill_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// arrival publishes a message with this metadata and gives how long it took, in a
// bubble's time.
func arrival(t *testing.T, meta message.Metadata) time.Duration {
	t.Helper()
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
	ch := subscribe(t, sub, "t")
	msg := newMessage("g", "x")
	for key, value := range meta {
		msg.Metadata[key] = value
	}
	start := time.Now()
	if err := pub.Publish("t", msg); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-ch:
		got.Ack()
		for key, value := range meta {
			if got.Metadata[key] != value {
				t.Errorf("metadata %s came as %q, was %q", key, got.Metadata[key], value)
			}
		}
	case <-time.After(3 * time.Hour):
		t.Fatal("no message")
	}
	return time.Since(start)
}

func TestDelayedPublish(t *testing.T) {
	const until, wait = delay.DelayedUntilKey, delay.DelayedForKey
	metaOf := func(d delay.Delay) message.Metadata {
		msg := message.NewMessage("", nil)
		delay.Message(msg, d)
		return msg.Metadata
	}
	for name, c := range map[string]struct {
		meta func(now time.Time) message.Metadata
		want time.Duration
	}{
		"none":             {func(time.Time) message.Metadata { return nil }, 0},
		"for 1.5s":         {func(time.Time) message.Metadata { return metaOf(delay.For(1500 * time.Millisecond)) }, 1500 * time.Millisecond},
		"for 300ms":        {func(time.Time) message.Metadata { return metaOf(delay.For(300 * time.Millisecond)) }, 300 * time.Millisecond},
		"for zero":         {func(time.Time) message.Metadata { return metaOf(delay.For(0)) }, 0},
		"for less":         {func(time.Time) message.Metadata { return metaOf(delay.For(-time.Hour)) }, 0},
		"until in an hour": {func(now time.Time) message.Metadata { return metaOf(delay.Until(now.Add(time.Hour))) }, time.Hour},
		"other time zone": {func(now time.Time) message.Metadata {
			zone := time.FixedZone("far", 13*3600)
			return message.Metadata{until: now.Add(time.Hour).In(zone).Format(time.RFC3339)}
		}, time.Hour},
		"duration only": {func(time.Time) message.Metadata { return message.Metadata{wait: "2s"} }, 2 * time.Second},
		"until only, passed": {func(now time.Time) message.Metadata {
			return message.Metadata{until: now.Add(-time.Hour).Format(time.RFC3339)}
		}, 0},
		"published again, old pair": {func(now time.Time) message.Metadata {
			return message.Metadata{until: now.Add(-3 * time.Second).Format(time.RFC3339), wait: "2s"}
		}, 0},
		"the two differ": {func(now time.Time) message.Metadata {
			return message.Metadata{until: now.Add(time.Hour).Format(time.RFC3339), wait: "2s"}
		}, time.Hour},
		"before all times": {func(time.Time) message.Metadata { return message.Metadata{until: "0001-01-01T00:00:00Z"} }, 0},
	} {
		for _, off := range []time.Duration{0, 400 * time.Millisecond, 999 * time.Millisecond} { // in the second
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(off)
					// Times are cut to whole seconds; the store polls to the millisecond.
					got := arrival(t, c.meta(time.Now()))
					if got < c.want-time.Second || got > c.want+5*time.Millisecond {
						t.Fatalf("came after %s, want %s", got, c.want)
					}
					if c.want%time.Hour != 0 && got < c.want {
						t.Fatalf("came after %s, want %s exactly", got, c.want)
					}
				})
			})
		}
	}
}

func TestDelayTooFar(t *testing.T) {
	pub := newPublisher(t, newMemory(t), rotawatermill.PublisherConfig{})
	msg := newMessage("g", "x")
	msg.Metadata[delay.DelayedUntilKey] = "2300-01-01T00:00:00Z"
	invalid(t, pub.Publish("t", msg), "run time")
	msg.Metadata = message.Metadata{delay.DelayedForKey: "1000000h"}
	invalid(t, pub.Publish("t", msg), "delay")
}

// TestDelayOnError: Watermill's middleware sets the delay of a nack by itself,
// counting up over redeliveries, with no second topic.
func TestDelayOnError(t *testing.T) {
	for _, published := range []time.Duration{0, 2 * time.Second} { // with a delay of its own
		for _, initial := range []time.Duration{100 * time.Millisecond, 10 * time.Second} {
			synctest.Test(t, func(t *testing.T) { delayOnError(t, published, initial) })
		}
	}
}

func delayOnError(t *testing.T, published, initial time.Duration) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t")
	msg := newMessage("g", "x")
	if published > 0 {
		delay.Message(msg, delay.For(published))
	}
	if err := pub.Publish("t", msg); err != nil {
		t.Fatal(err)
	}
	failing := (&middleware.DelayOnError{InitialInterval: initial, MaxInterval: 4 * initial, Multiplier: 2}).
		Middleware(func(*message.Message) ([]*message.Message, error) { return nil, core.ErrConflict })
	want := initial
	if published > 0 {
		want = min(2*published, 4*initial) // the middleware counts up from what is there
	}
	got := awaitMessage(t, ch)
	publish(t, pub, "t", "g", "behind")
	for range 6 {
		_, _ = failing(got)
		got.Nack()
		nacked := time.Now()
		got = awaitMessage(t, ch)
		if string(got.Payload) == "behind" {
			t.Fatal("a nacked message was overtaken")
		}
		if took := time.Since(nacked); took < want || took > want+20*time.Millisecond {
			t.Fatalf("attempt %d came after %s, want %s", rotawatermill.AttemptFromCtx(got.Context()), took, want)
		}
		want = min(2*want, 4*initial)
	}
	// A nack without a new delay falls back to NackDelay, unless the old one looks new.
	time.Sleep(10 * time.Second)
	got.Nack()
	nacked := time.Now()
	got = awaitMessage(t, ch)
	if took := time.Since(nacked); took > 200*time.Millisecond {
		t.Fatalf("a plain nack came after %s", took)
	}
	got.Ack()
	awaitMessage(t, ch).Ack()
}

func awaitMessage(t *testing.T, ch <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg := <-ch:
		return msg
	case <-time.After(time.Hour):
		t.Fatal("no message")
	}
	return nil
}
