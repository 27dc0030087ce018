package rotawatermill_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// TestOnePerGroup: un-acked messages of MaxInFlight groups at once, one of each.
func TestOnePerGroup(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		for _, group := range []string{"a", "b", "c"} {
			publish(t, pub, topic, group, group+"0", group+"1")
		}
		ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{MaxInFlight: 2}), topic)
		first, second := receive(t, ch), receive(t, ch)
		got := []string{string(first.Payload), string(second.Payload)}
		if slices.Sort(got); !slices.Equal(got, []string{"a0", "b0"}) {
			t.Fatalf("in hand: %v", got)
		}
		receiveNone(t, ch, 50*time.Millisecond) // MaxInFlight
		first.Ack()
		receiveText(t, ch, "c0").Ack() // waits longer than what follows in the group
		receive(t, ch).Ack()
		second.Ack()
		rest := map[string]bool{}
		for range 2 {
			msg := receive(t, ch)
			rest[string(msg.Payload)] = true
			msg.Ack()
		}
	})
}

// TestMessageContext: what it carries, and when it ends.
func TestMessageContext(t *testing.T) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	publish(t, pub, "t", "g", "x")
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{NackDelay: noDelay})
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	defer cancel()
	ch, err := sub.Subscribe(parent, "t")
	if err != nil {
		t.Fatal(err)
	}
	first := receive(t, ch)
	ctx := first.Context()
	job := rotawatermill.JobFromCtx(ctx)
	switch {
	case ctx.Value(key{}) != "v":
		t.Error("the values of Subscribe's context are missing")
	case job == nil || job.Queue != "t" || string(job.Payload) != "x" || job.State != core.StateRunning:
		t.Errorf("job %+v", job)
	case rotawatermill.AttemptFromCtx(ctx) != 1:
		t.Errorf("attempt %d", rotawatermill.AttemptFromCtx(ctx))
	case rotawatermill.GroupFromCtx(ctx) != "g":
		t.Errorf("group %q", rotawatermill.GroupFromCtx(ctx))
	case rotawatermill.FenceFromCtx(ctx) == 0:
		t.Error("no fence")
	case time.Since(rotawatermill.PublishedAtFromCtx(ctx)) > time.Minute:
		t.Errorf("published at %s", rotawatermill.PublishedAtFromCtx(ctx))
	case worker.FromContext(ctx) == nil:
		t.Error("no task")
	}
	if left := time.Until(rotawatermill.LeaseEndFromCtx(ctx)); left < time.Second || left > rotawatermill.DefaultLease {
		t.Errorf("the lease ends in %s", left)
	}
	if ctx.Err() != nil {
		t.Fatal("the context has ended in hand")
	}
	first.Nack()
	ended(t, ctx.Done())

	second := receive(t, ch)
	if second == first {
		t.Fatal("a redelivery is the same message value")
	}
	if second.Context().Err() != nil || rotawatermill.AttemptFromCtx(second.Context()) != 2 {
		t.Fatalf("the redelivery's context: %v, attempt %d", second.Context().Err(), rotawatermill.AttemptFromCtx(second.Context()))
	}
	if rotawatermill.FenceFromCtx(second.Context()) <= rotawatermill.FenceFromCtx(ctx) {
		t.Error("the fence did not grow")
	}
	second.Ack()
	ended(t, second.Context().Done())
	eventually(t, "the counters agree", func() bool {
		return sub.Stats() == rotawatermill.Stats{Delivered: 2, Acked: 1, Nacked: 1}
	})
}

// TestContextOfAnother: the accessors answer zero values, and Reason does nothing.
func TestContextOfAnother(t *testing.T) {
	ctx := t.Context()
	rotawatermill.Reason(ctx, errors.New("x"))
	if rotawatermill.JobFromCtx(ctx) != nil || rotawatermill.AttemptFromCtx(ctx) != 0 || rotawatermill.GroupFromCtx(ctx) != "" ||
		rotawatermill.FenceFromCtx(ctx) != 0 || !rotawatermill.LeaseEndFromCtx(ctx).IsZero() || !rotawatermill.PublishedAtFromCtx(ctx).IsZero() {
		t.Fatal("not zero")
	}
}

func noDelay(int) time.Duration { return 0 }

// TestNackKeepsThePlace: a nacked message comes again before what stands behind it,
// whoever takes it.
func TestNackKeepsThePlace(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		publish(t, pub, topic, "g", "0", "1", "2")
		one := newSubscriber(t, b, rotawatermill.SubscriberConfig{NackDelay: noDelay})
		two := newSubscriber(t, b, rotawatermill.SubscriberConfig{NackDelay: noDelay})
		chOne, chTwo := subscribe(t, one, topic), subscribe(t, two, topic)
		next := func() *message.Message {
			select {
			case msg := <-chOne:
				return msg
			case msg := <-chTwo:
				return msg
			case <-time.After(patience):
				t.Fatal("no message")
			}
			return nil
		}
		for _, want := range []string{"0", "1", "2"} {
			for attempt := 1; attempt <= 5; attempt++ {
				msg := next()
				if string(msg.Payload) != want || rotawatermill.AttemptFromCtx(msg.Context()) != attempt {
					t.Fatalf("received %q, attempt %d; want %q, attempt %d",
						msg.Payload, rotawatermill.AttemptFromCtx(msg.Context()), want, attempt)
				}
				if attempt < 5 {
					msg.Nack()
				} else {
					msg.Ack()
				}
			}
		}
	})
}

// TestOrderUnderRandomNacks: many groups, several subscribers, every third message
// nacked; each group must be acked in publish order and never twice at once.
func TestOrderUnderRandomNacks(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const groups, each = 20, 30
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		var wait sync.WaitGroup
		defer wait.Wait()
		l := newLedger()
		for range 4 {
			sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{
				MaxInFlight: 8, NackDelay: func(int) time.Duration { return rand.N(3 * time.Millisecond) },
			})
			ch := subscribe(t, sub, topic)
			wait.Go(func() {
				var handlers sync.WaitGroup
				defer handlers.Wait()
				for msg := range ch {
					handlers.Go(func() {
						group := rotawatermill.GroupFromCtx(msg.Context())
						l.start(group)
						time.Sleep(rand.N(time.Millisecond))
						acked := rand.N(3) > 0
						l.end(group, string(msg.Payload), acked)
						if acked {
							msg.Ack()
						} else {
							msg.Nack()
						}
					})
				}
			})
			defer func() { _ = sub.Close() }()
		}
		for i := range each {
			for g := range groups {
				publish(t, pub, topic, fmt.Sprint("g", g), fmt.Sprint(i))
			}
		}
		eventually(t, "all are acked", func() bool { return l.total() >= groups*each })
		l.check(t, groups, each)
	})
}

// TestDefaultNackDelay: a short wait, whatever the attempt; other groups go on.
func TestDefaultNackDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory(t)
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "x")
		ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t")
		msg := receive(t, ch)
		for range 400 {
			nacked := time.Now()
			msg.Nack()
			msg = receive(t, ch)
			wait := time.Since(nacked)
			if wait < rotawatermill.DefaultNackDelay || wait > 2*rotawatermill.DefaultNackDelay+10*time.Millisecond {
				t.Fatalf("attempt %d came after %s", rotawatermill.AttemptFromCtx(msg.Context()), wait)
			}
		}
		msg.Ack()
	})
}

func TestOnFailureSkip(t *testing.T) {
	b := newMemory(t)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0", "1")
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{
		OnFailure: core.Skip, NackDelay: func(int) time.Duration { return 100 * time.Millisecond },
	}), "t")
	receiveText(t, ch, "0").Nack()
	receiveText(t, ch, "1").Ack()
	receiveText(t, ch, "0").Ack()
}
