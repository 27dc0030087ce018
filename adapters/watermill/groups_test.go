package rotawatermill_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// TestEveryConsumerGroupGetsACopy, and shares it among its subscribers.
func TestEveryConsumerGroupGetsACopy(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const n = 20
		var wait sync.WaitGroup
		defer wait.Wait()
		var mu sync.Mutex
		seen := map[string]map[string]int{"a": {}, "b": {}}
		for _, group := range []string{"a", "a", "b"} {
			sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: group})
			ch := subscribe(t, sub, topic)
			wait.Go(func() {
				for msg := range ch {
					mu.Lock()
					seen[group][string(msg.Payload)]++
					mu.Unlock()
					msg.Ack()
				}
			})
			defer func() { _ = sub.Close() }()
		}
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		for i := range n {
			publish(t, pub, topic, fmt.Sprint(i%3), fmt.Sprint(i))
		}
		eventually(t, "both groups have all", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen["a"]) == n && len(seen["b"]) == n
		})
		mu.Lock()
		defer mu.Unlock()
		for group, messages := range seen {
			for payload, times := range messages {
				if times != 1 {
					t.Errorf("group %s got %s %d times", group, payload, times)
				}
			}
		}
	})
}

// TestOneGroupNacksForEver: the other one does not feel it.
func TestOneGroupNacksForEver(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const n = 200
		sick := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "sick", NackDelay: noDelay})
		well := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "well"})
		chSick, chWell := subscribe(t, sick, topic), subscribe(t, well, topic)
		go func() {
			for msg := range chSick {
				msg.Nack()
			}
		}()
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		for i := range n {
			publish(t, pub, topic, "g", fmt.Sprint(i))
		}
		for i := range n {
			receiveText(t, chWell, fmt.Sprint(i)).Ack()
		}
		eventually(t, "the sick group goes on nacking", func() bool { return sick.Stats().Nacked > 20 })
		list, err := rotawatermill.Bindings(t.Context(), b, topic)
		if err != nil || len(list) != 2 || list[0].Lag != n {
			t.Fatalf("bindings %+v, %v", list, err)
		}
		if err := sick.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBindings: they are durable, listed with their lag, and end with Unbind only.
func TestBindings(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		publish(t, pub, topic, "g", "kept") // nobody is bound yet

		var wait sync.WaitGroup
		for range 20 { // many processes start at once
			wait.Go(func() {
				sub, err := rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{ConsumerGroup: "a"})
				if err == nil {
					err = errors.Join(sub.SubscribeInitialize(topic), sub.SubscribeInitialize(topic), sub.Close())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if err := rotawatermill.Bind(t.Context(), b, topic, "b@c"); err != nil {
			t.Fatal(err)
		}
		publish(t, pub, topic, "g", "0", "1")
		subA := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "a", MaxAttempts: 1})
		chA := subscribe(t, subA, topic)
		receiveText(t, chA, "0").Nack() // dead
		receiveText(t, chA, "1").Ack()
		eventually(t, "a has settled all", func() bool { return subA.Stats().Acked == 1 })

		list, err := rotawatermill.Bindings(t.Context(), b, topic)
		if err != nil || len(list) != 2 {
			t.Fatalf("bindings %+v, %v", list, err)
		}
		first, second := list[0], list[1]
		if first.ConsumerGroup != "a" || first.Queue != topic+"@a" || first.Topic != topic || first.Lag != 0 || first.Dead != 1 || !first.OldestWaiting.IsZero() {
			t.Errorf("binding %+v", first)
		}
		if second.ConsumerGroup != "b@c" || second.Lag != 2 || second.OldestWaiting.IsZero() || time.Since(second.BoundAt) > time.Minute {
			t.Errorf("binding %+v", second)
		}

		for range 2 { // idempotent
			if err := rotawatermill.Unbind(t.Context(), b, topic, "b@c"); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, pub, topic, "g", "2")
		receiveText(t, chA, "2").Ack()
		// What b had stays; nothing came since.
		old, err := rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{}) // reads the queue itself, binds nothing
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = old.Close() }()
		ch := subscribe(t, old, topic+"@b@c")
		receiveText(t, ch, "0").Ack()
		receiveText(t, ch, "1").Ack()
		receiveNone(t, ch, 50*time.Millisecond)
		// So does what was published before anybody was bound.
		receiveText(t, subscribe(t, old, topic), "kept").Ack()
	})
}

// TestNoBindingPolicies: a topic that nobody is bound to.
func TestNoBindingPolicies(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		refuse := newPublisher(t, b, rotawatermill.PublisherConfig{NoBinding: rotawatermill.NoBindingError})
		drop := newPublisher(t, b, rotawatermill.PublisherConfig{NoBinding: rotawatermill.NoBindingDrop})
		if err := refuse.Publish(topic, newMessage("g", "x"), newMessage("g", "y")); !errors.Is(err, core.ErrNoBinding) {
			t.Fatalf("error %v, want ErrNoBinding", err)
		}
		publish(t, drop, topic, "g", "dropped")
		ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), topic)
		receiveNone(t, ch, 50*time.Millisecond)
		bound := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "c"}), topic)
		publish(t, refuse, topic, "g", "0")
		publish(t, drop, topic, "g", "1")
		receiveText(t, bound, "0").Ack()
		receiveText(t, bound, "1").Ack()
	})
}
