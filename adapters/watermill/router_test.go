package rotawatermill_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// startRouter runs a router until the test ends, or stop is called.
func startRouter(t *testing.T, r *message.Router) (stop func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background()) }()
	<-r.Running()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			if err := r.Close(); err != nil {
				t.Errorf("close the router: %v", err)
			}
			if err := <-done; err != nil {
				t.Errorf("the router ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func newRouter(t *testing.T) *message.Router {
	t.Helper()
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRouter runs a stock Router with stock middleware: retries in process, a
// poison queue outside of them, produced messages, and a second handler on what
// the first one produced. Order within groups must hold all the way.
func TestRouter(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const groups, each = 6, 15
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		router := newRouter(t)
		poison, err := middleware.PoisonQueue(newPublisher(t, b, rotawatermill.PublisherConfig{}), topic+"-poison")
		if err != nil {
			t.Fatal(err)
		}
		router.AddMiddleware(
			middleware.Recoverer,
			middleware.CorrelationID,
			poison, // outside of Retry
			middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}.Middleware,
		)
		sub := func(group string) *rotawatermill.Subscriber {
			return newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: group, DrainTimeout: 2 * time.Second})
		}
		tries, second, poisoned := newLedger(), newLedger(), newLedger()
		router.AddHandler("first", topic, sub("first"), topic+"-out", newPublisher(t, b, rotawatermill.PublisherConfig{}),
			func(msg *message.Message) ([]*message.Message, error) {
				group := rotawatermill.GroupFromCtx(msg.Context())
				tries.start(group)
				defer tries.end(group, string(msg.Payload), false)
				if string(msg.Payload) == "7" {
					return nil, errors.New("seven")
				}
				out := message.NewMessage(msg.UUID, msg.Payload)
				out.Metadata.Set(rotawatermill.GroupMetadata, group)
				return message.Messages{out}, nil
			})
		router.AddConsumerHandler("second", topic+"-out", sub("second"), note(second))
		router.AddConsumerHandler("poisoned", topic+"-poison", sub("poisoned"), func(msg *message.Message) error {
			for key, want := range map[string]string{
				middleware.ReasonForPoisonedKey: "seven", middleware.PoisonedTopicKey: topic, middleware.PoisonedHandlerKey: "first",
			} {
				if got := msg.Metadata.Get(key); got != want {
					t.Errorf("metadata %s is %q, want %q", key, got, want)
				}
			}
			return note(poisoned)(msg)
		})
		stop := startRouter(t, router)
		for i := range each {
			for g := range groups {
				publish(t, pub, topic, fmt.Sprint("g", g), fmt.Sprint(i))
			}
		}
		eventually(t, "all have gone through", func() bool {
			return second.total() >= groups*(each-1) && poisoned.total() >= groups
		})
		stop()
		if tries.overlap > 1 || second.overlap > 1 {
			t.Errorf("%d and %d messages of one group in hand at once", tries.overlap, second.overlap)
		}
		for group, got := range second.acked {
			if len(got) != each-1 {
				t.Fatalf("group %s: %v", group, got)
			}
			for i, payload := range got {
				want := i
				if i >= 7 {
					want = i + 1
				}
				if payload != fmt.Sprint(want) {
					t.Fatalf("group %s was handled as %v", group, got)
				}
			}
		}
		if list, err := rotawatermill.Bindings(t.Context(), b, topic); err != nil || list[0].Lag != 0 || list[0].Dead != 0 {
			t.Errorf("bindings %+v, %v", list, err)
		}
	})
}

// note makes a handler that writes into a ledger.
func note(l *ledger) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		group := rotawatermill.GroupFromCtx(msg.Context())
		l.start(group)
		l.end(group, string(msg.Payload), true)
		return nil
	}
}

// TestRouterDeadLetter: a dead letter says why, and which handler gave up.
func TestRouterDeadLetter(t *testing.T) {
	b := newMemory(t)
	router := newRouter(t)
	router.AddMiddleware(rotawatermill.RecordErrors)
	router.AddConsumerHandler("billing", "orders", newSubscriber(t, b, rotawatermill.SubscriberConfig{
		MaxAttempts: 3, NackDelay: noDelay,
	}), func(*message.Message) error { return errors.New("no such account") })
	startRouter(t, router)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "orders", "g", "x")
	eventually(t, "a dead letter", func() bool { return len(deadLetters(t, b, "orders")) == 1 })
	dead := deadLetters(t, b, "orders")[0]
	if len(dead.Failures) != 3 || dead.Failures[2].Error != "no such account" {
		t.Errorf("failures %+v", dead.Failures)
	}
	for key, want := range map[string]string{
		middleware.ReasonForPoisonedKey: "no such account", middleware.PoisonedTopicKey: "orders",
		middleware.PoisonedHandlerKey: "billing", middleware.PoisonedSubscriberKey: "rotawatermill.Subscriber",
	} {
		if got := dead.Headers[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
}

// TestRouterShutdown: the Router closes the subscriber, ends the context of
// Subscribe and closes the publisher, all at once. Handlers in flight must be able
// to finish: their context lives on, what they produce is published, and their
// messages are not delivered again.
func TestRouterShutdown(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), topic, "g", "0", "1")
		router := newRouter(t)
		sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{DrainTimeout: patience})
		started, goOn := make(chan struct{}), make(chan struct{})
		var runs atomic.Int32
		router.AddHandler("slow", topic, sub, topic+"-out", newPublisher(t, b, rotawatermill.PublisherConfig{}),
			func(msg *message.Message) ([]*message.Message, error) {
				runs.Add(1)
				close(started)
				<-goOn
				return message.Messages{newMessage("g", "out")}, msg.Context().Err()
			})
		stop := startRouter(t, router)
		<-started
		time.AfterFunc(50*time.Millisecond, func() { close(goOn) })
		stop()
		if n := runs.Load(); n != 1 {
			t.Errorf("%d messages were handled", n)
		}
		if s := sub.Stats(); s.Acked != 1 || s.Nacked != 0 {
			t.Errorf("counters %+v", s)
		}
		next := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
		receiveText(t, subscribe(t, next, topic+"-out"), "out").Ack()
		receiveText(t, subscribe(t, next, topic), "1").Ack()
	})
}

// TestForwarderKeepsOrder: Watermill's outbox, with the group key of the message
// inside the envelope.
func TestForwarderKeepsOrder(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const groups, each = 5, 20
		outbox := newPublisher(t, b, rotawatermill.PublisherConfig{
			GroupKey: rotawatermill.ForwarderGroupKey(rotawatermill.DefaultGroupKey), NoKey: rotawatermill.NoKeyError,
		})
		pub := forwarder.NewPublisher(outbox, forwarder.PublisherConfig{ForwarderTopic: topic + "-outbox"})
		fwd, err := forwarder.NewForwarder(
			newSubscriber(t, b, rotawatermill.SubscriberConfig{DrainTimeout: 2 * time.Second}),
			newPublisher(t, b, rotawatermill.PublisherConfig{}), watermill.NopLogger{},
			forwarder.Config{ForwarderTopic: topic + "-outbox"})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() {
			if err := fwd.Run(context.Background()); err != nil {
				t.Error(err)
			}
		})
		defer running.Wait()
		defer func() { _ = fwd.Close() }()
		<-fwd.Running()

		for i := range each {
			for g := range groups {
				publish(t, pub, topic, fmt.Sprint("g", g), fmt.Sprint(i))
			}
		}
		l := newLedger()
		ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), topic)
		for range groups * each {
			msg := receive(t, ch)
			_ = note(l)(msg)
			msg.Ack()
		}
		l.check(t, groups, each)
	})
}
