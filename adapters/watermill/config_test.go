package rotawatermill_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
)

// invalid checks that err is a typed error about a field.
func invalid(t *testing.T, err error, field string) {
	t.Helper()
	var e *core.InvalidError
	if !errors.As(err, &e) || !errors.Is(err, core.ErrInvalid) {
		t.Fatalf("error %v, want a *core.InvalidError", err)
	}
	if e.Field != field {
		t.Fatalf("the error names %q, want %q: %v", e.Field, field, err)
	}
}

func TestNilBackend(t *testing.T) {
	var none *memory.Backend
	for _, b := range []core.Backend{nil, none} {
		_, err := rotawatermill.NewPublisher(b, rotawatermill.PublisherConfig{})
		invalid(t, err, "backend")
		_, err = rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{})
		invalid(t, err, "backend")
	}
	_, err := rotawatermill.NewPublisher(nil, rotawatermill.PublisherConfig{})
	invalid(t, err, "backend")
}

func TestBadPublisherConfig(t *testing.T) {
	b := newMemory(t)
	_, err := rotawatermill.NewPublisher(b, rotawatermill.PublisherConfig{NoKey: 9})
	invalid(t, err, "no-key policy")
	_, err = rotawatermill.NewPublisher(b, rotawatermill.PublisherConfig{NoBinding: 9})
	invalid(t, err, "no-binding policy")
}

func TestBadSubscriberConfig(t *testing.T) {
	b := newMemory(t)
	for field, cfg := range map[string]rotawatermill.SubscriberConfig{
		"max in flight":    {MaxInFlight: -1},
		"lease":            {Lease: -time.Second},
		"max handling":     {MaxHandling: -1},
		"poll interval":    {PollInterval: -1},
		"max attempts":     {MaxAttempts: -1},
		"drain timeout":    {DrainTimeout: -2},
		"failure policy":   {OnFailure: 9},
		"exhausted policy": {OnExhausted: 9},
		"consumer group":   {ConsumerGroup: "a\nb"},
		"owner":            {Owner: strings.Repeat("x", core.MaxOwnerLength+1)},
	} {
		_, err := rotawatermill.NewSubscriber(b, cfg)
		invalid(t, err, field)
	}
	_, err := rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{Lease: core.MinLease - 1})
	invalid(t, err, "lease")
	_, err = rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{MaxInFlight: 2_000_000})
	invalid(t, err, "max in flight")
	_, err = rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{PollInterval: 1})
	invalid(t, err, "poll interval")
}

func TestBadTopics(t *testing.T) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	queues := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
	groups := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "billing"})
	subscribers := map[string]*rotawatermill.Subscriber{"queue mode": queues, "group mode": groups}
	for _, topic := range []string{"", " ", "a\x00b", "a\nb", "a\xffb", strings.Repeat("t", core.MaxQueueName+1)} {
		invalid(t, pub.Publish(topic, newMessage("", "x")), "topic")
		for _, sub := range subscribers {
			invalid(t, sub.SubscribeInitialize(topic), "topic")
			_, err := sub.Subscribe(t.Context(), topic)
			invalid(t, err, "topic")
		}
	}
	// With the consumer group it is too long.
	_, err := groups.Subscribe(t.Context(), strings.Repeat("t", core.MaxQueueName))
	invalid(t, err, "queue")
	// An "@" divides topic and group.
	_, err = groups.Subscribe(t.Context(), "orders@eu")
	invalid(t, err, "topic")
	_, err = rotawatermill.Bindings(t.Context(), b, "a\nb")
	invalid(t, err, "topic")
	invalid(t, rotawatermill.Bind(t.Context(), b, "orders", ""), "consumer group")
	invalid(t, rotawatermill.Unbind(t.Context(), b, "orders", "\n"), "consumer group")
}

func TestBadMessages(t *testing.T) {
	pub := newPublisher(t, newMemory(t), rotawatermill.PublisherConfig{})
	invalid(t, pub.Publish("t", nil), "message")
	for _, key := range []string{strings.Repeat("k", core.MaxGroupName+1), "\n", "\xff", " "} {
		invalid(t, pub.Publish("t", newMessage(key, "x")), "group key")
	}
	// One bad message refuses the whole call.
	good, bad := newMessage("g", "x"), newMessage("\n", "x")
	invalid(t, pub.Publish("t", good, bad), "group key")
	big := newMessage("g", "x")
	big.Payload = make([]byte, core.DefaultMaxPayload+1)
	invalid(t, pub.Publish("t", good, big), "payload")
	many := newMessage("g", "x")
	many.Metadata["big"] = strings.Repeat("m", core.MaxHeaderBytes)
	invalid(t, pub.Publish("t", good, many), "headers")
	for key, value := range map[string]string{"_watermill_delayed_until": "tomorrow", "_watermill_delayed_for": "long"} {
		odd := newMessage("g", "x")
		odd.Metadata[key] = value
		invalid(t, pub.Publish("t", good, odd), "metadata "+key)
	}
}

func TestNoKeyPolicies(t *testing.T) {
	b := newMemory(t)
	perMessage := newPublisher(t, b, rotawatermill.PublisherConfig{})
	perTopic := newPublisher(t, b, rotawatermill.PublisherConfig{NoKey: rotawatermill.NoKeyPerTopic})
	refuse := newPublisher(t, b, rotawatermill.PublisherConfig{NoKey: rotawatermill.NoKeyError})
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{MaxInFlight: 10})

	if err := refuse.Publish("t", newMessage("", "x")); !errors.Is(err, rotawatermill.ErrNoKey) {
		t.Fatalf("error %v, want ErrNoKey", err)
	}
	publish(t, refuse, "keyed", "g", "x") // with a key it may

	publish(t, perMessage, "free", "", "0", "1")
	ch := subscribe(t, sub, "free")
	first, second := receive(t, ch), receive(t, ch) // both in hand at once
	first.Ack()
	second.Ack()

	publish(t, perTopic, "serial", "", "0", "1")
	ch = subscribe(t, sub, "serial")
	msg := receiveText(t, ch, "0")
	receiveNone(t, ch, 50*time.Millisecond)
	msg.Ack()
	receiveText(t, ch, "1").Ack()
}

func TestGroupKeyFunction(t *testing.T) {
	b := newMemory(t)
	oops := errors.New("oops")
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{GroupKey: func(topic string, msg *message.Message) (string, error) {
		if topic == "bad" {
			return "", oops
		}
		return "k-" + string(msg.Payload), nil
	}})
	if err := pub.Publish("bad", newMessage("", "x")); !errors.Is(err, oops) {
		t.Fatalf("error %v, want the function's", err)
	}
	publish(t, pub, "t", "", "x")
	msg := receive(t, subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t"))
	if group := rotawatermill.GroupFromCtx(msg.Context()); group != "k-x" {
		t.Fatalf("group %q", group)
	}
	msg.Ack()
}

func TestDefaultGroupKey(t *testing.T) {
	for _, c := range []struct {
		meta message.Metadata
		want string
	}{
		{nil, ""},
		{message.Metadata{"partition_key": "p"}, "p"},
		{message.Metadata{"partition_key": "p", "MessageGroupId": "m"}, "m"},
		{message.Metadata{"partition_key": "p", "MessageGroupId": "m", "rota_group": "r"}, "r"},
		{message.Metadata{"partition_key": "p", "MessageGroupId": "", "rota_group": ""}, "p"},
	} {
		msg := message.NewMessage("u", nil)
		msg.Metadata = c.meta
		if got, err := rotawatermill.DefaultGroupKey("t", msg); got != c.want || err != nil {
			t.Errorf("%v: %q, %v; want %q", c.meta, got, err, c.want)
		}
	}
}
