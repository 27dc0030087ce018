package rotawatermill_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// These tests run in bubbles of testing/synctest, so that their times are exact
// and a goroutine that is left over fails them.

// state is what a subscription may be in the middle of when it is closed.
type state struct {
	name string
	// enter brings the subscription there. It gives how long Close may take and
	// checks afterwards.
	enter func(t *testing.T, b core.Backend, ch <-chan *message.Message) (atMost time.Duration, after func())
	// left is how many messages of the two there are afterwards.
	left int
}

const drain = 3 * time.Second

var states = []state{
	{"idle", func(*testing.T, core.Backend, <-chan *message.Message) (time.Duration, func()) { return 0, nil }, 0},
	{"nobody receives", func(t *testing.T, b core.Backend, _ <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "", "0", "1")
		return 0, func() { attempts(t, b, 0, 0) }
	}, 2},
	{"in hand, acked while draining", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		msg := receiveText(t, ch, "0")
		time.AfterFunc(drain/2, func() {
			if msg.Context().Err() != nil {
				t.Error("the context ended while draining")
			}
			msg.Ack()
		})
		return drain / 2, func() { attempts(t, b, 0) }
	}, 1},
	{"in hand, nacked while draining", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		msg := receiveText(t, ch, "0")
		time.AfterFunc(drain/2, func() { msg.Nack() })
		return drain / 2, func() { attempts(t, b, 0, 1) }
	}, 2},
	{"in hand, nacked as the context ends", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		msg := receiveText(t, ch, "0")
		context.AfterFunc(msg.Context(), func() {
			if cause := context.Cause(msg.Context()); !errors.Is(cause, worker.ErrStopping) {
				t.Errorf("cause %v", cause)
			}
			msg.Nack()
		})
		return drain, func() { attempts(t, b, 0, 0) }
	}, 2},
	{"in hand, acked as the context ends", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		msg := receiveText(t, ch, "0")
		context.AfterFunc(msg.Context(), func() { msg.Ack() })
		return drain, nil
	}, 1},
	{"in hand, forgotten", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		msg := receiveText(t, ch, "0")
		return drain + time.Second, func() {
			attempts(t, b, 0, 0)
			if msg.Context().Err() == nil {
				t.Error("the context has not ended")
			}
			if msg.Ack() {
				t.Error("an ack after Close answers true")
			}
		}
	}, 2},
	{"in hand, and the rest not received", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "", "0", "1")
		msg := receive(t, ch)
		time.AfterFunc(drain/2, func() {
			// The other one is back already.
			attempts(t, b, 0)
			msg.Ack()
		})
		return drain / 2, nil
	}, 1},
	{"nacked, waiting for its delay", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		receiveText(t, ch, "0").Nack()
		synctest.Wait()
		return 0, nil
	}, 2},
	{"in the hop of a decorator", func(t *testing.T, b core.Backend, ch <-chan *message.Message) (time.Duration, func()) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t@c", "g", "0", "1")
		hop, release := make(chan *message.Message), make(chan struct{})
		go func() {
			msg := <-ch
			select {
			case hop <- msg: // nobody reads
			case <-release:
			}
		}()
		return drain + time.Second, func() { close(release); attempts(t, b, 0, 0) }
	}, 2},
}

// attempts checks the attempts of the jobs that wait in t@c.
func attempts(t *testing.T, b core.Backend, want ...int) {
	t.Helper()
	got := map[int]int{}
	for _, s := range []core.State{core.StatePending, core.StateRetrying} {
		page, err := b.Jobs(context.Background(), core.JobFilter{Queue: "t@c", State: s})
		if err != nil {
			t.Error(err)
			return
		}
		for _, job := range page.Jobs {
			got[job.Attempt]++
		}
	}
	for _, n := range want {
		got[n]--
	}
	for n, count := range got {
		if count != 0 {
			t.Errorf("%+d waiting jobs with %d attempts than wanted", count, n)
		}
	}
}

// ways are the ways a subscription can be told to end.
var ways = map[string]func(sub *rotawatermill.Subscriber, cancel func()) error{
	"Close": func(sub *rotawatermill.Subscriber, _ func()) error { return sub.Close() },
	"Stop and Close": func(sub *rotawatermill.Subscriber, _ func()) error {
		return errors.Join(sub.Stop(), sub.Stop(), sub.Close())
	},
	"Close by many": func(sub *rotawatermill.Subscriber, _ func()) error {
		var wait sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			wait.Go(func() { errs[i] = sub.Close() })
		}
		wait.Wait()
		return errors.Join(errs...)
	},
	"end of the context": func(_ *rotawatermill.Subscriber, cancel func()) error { cancel(); return nil },
	"end of the context and Close": func(sub *rotawatermill.Subscriber, cancel func()) error {
		cancel()
		return sub.Close()
	},
}

// TestCloseInEveryState: Close is bounded and synchronous and loses nothing,
// whatever the subscription is in the middle of and however it is told to end.
func TestCloseInEveryState(t *testing.T) {
	for _, in := range states {
		for name, end := range ways {
			t.Run(in.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { closeIn(t, in, name != "end of the context", end) })
			})
		}
	}
}

func closeIn(t *testing.T, in state, sync bool, end func(*rotawatermill.Subscriber, func()) error) {
	b := newMemory(t)
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "c", DrainTimeout: drain, NackDelay: func(int) time.Duration { return time.Minute }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ch, err := sub.Subscribe(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	atMost, after := in.enter(t, b, ch)
	synctest.Wait()
	start := time.Now()
	if err := end(sub, cancel); err != nil {
		t.Fatal(err)
	}
	if sync {
		if !isClosed(ch) {
			t.Fatal("the channel is not closed when Close returns")
		}
	} else {
		select {
		case _, open := <-ch:
			if open {
				t.Fatal("a message came after the end of the context")
			}
		case <-time.After(time.Hour):
			t.Fatal("the channel was never closed")
		}
	}
	if took := time.Since(start); took != atMost {
		t.Errorf("it took %s, want %s", took, atMost)
	}
	if after != nil {
		after()
	}
	if !sync {
		if err := sub.SubscribeInitialize("t"); err != nil { // the subscriber lives on
			t.Error(err)
		}
	}
	// Nothing is lost, and what was given back can be had at once.
	next := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "c"})
	ch = subscribe(t, next, "t")
	back := time.Now()
	for range in.left {
		awaitMessage(t, ch).Ack()
	}
	if took := time.Since(back); in.name != "nacked, waiting for its delay" && in.name != "in hand, nacked while draining" && took > 10*time.Millisecond {
		t.Errorf("the messages given back came after %s", took)
	}
	receiveNone(t, ch, time.Hour)
}

// TestStop: no more messages, but those in hand live on until Close.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory(t)
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		publish(t, pub, "t", "", "0", "1")
		sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
		ch := subscribe(t, sub, "t")
		msg := receive(t, ch)
		synctest.Wait() // the other one waits to be received
		if err := sub.Stop(); err != nil {
			t.Fatal(err)
		}
		receiveNone(t, ch, time.Hour) // far longer than the lease and the drain
		if msg.Context().Err() != nil {
			t.Fatal("the context of the message in hand has ended")
		}
		if _, err := sub.Subscribe(t.Context(), "t"); !errors.Is(err, core.ErrClosed) {
			t.Fatalf("Subscribe after Stop: %v", err)
		}
		msg.Ack()
		synctest.Wait()
		if s := sub.Stats(); s != (rotawatermill.Stats{Delivered: 1, Acked: 1, Returned: 1}) {
			t.Fatalf("counters %+v", s)
		}
		if err := sub.Close(); err != nil || !isClosed(ch) {
			t.Fatalf("closed %v, %v", isClosed(ch), err)
		}
	})
}

func TestClosedSubscriber(t *testing.T) {
	b := newMemory(t)
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
	for range 2 {
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sub.Subscribe(t.Context(), "t"); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Subscribe after Close: %v", err)
	}
	if err := sub.SubscribeInitialize("t"); !errors.Is(err, core.ErrClosed) {
		t.Errorf("SubscribeInitialize after Close: %v", err)
	}
	if err := sub.Stop(); err != nil {
		t.Errorf("Stop after Close: %v", err)
	}
	if _, err := b.Now(t.Context()); err != nil {
		t.Errorf("the backend is closed: %v", err)
	}
}

func TestSubscribeWithEndedContext(t *testing.T) {
	sub := newSubscriber(t, newMemory(t), rotawatermill.SubscriberConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sub.Subscribe(ctx, "t"); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

// TestNoDrain: core.None ends the contexts at once.
func TestNoDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory(t)
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0")
		sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{DrainTimeout: core.None})
		msg := receive(t, subscribe(t, sub, "t"))
		context.AfterFunc(msg.Context(), func() { msg.Nack() })
		start := time.Now()
		if err := sub.Close(); err != nil || time.Since(start) != 0 {
			t.Fatalf("%v after %s", err, time.Since(start))
		}
	})
}

// TestCloseWhileSubscribing: a Subscribe call that waits for the store does not
// outlive Close.
func TestCloseWhileSubscribing(t *testing.T) {
	b := &stuckBinder{Backend: newMemory(t), entered: make(chan struct{})}
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{ConsumerGroup: "c"})
	result := make(chan error)
	go func() {
		_, err := sub.Subscribe(context.Background(), "t")
		result <- err
	}()
	<-b.entered
	closed := make(chan error)
	go func() { closed <- sub.Close() }()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("Subscribe: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// stuckBinder answers Bind only when its context ends.
type stuckBinder struct {
	core.Backend
	entered chan struct{}
}

func (s *stuckBinder) Bind(ctx context.Context, _, _ string) error {
	close(s.entered)
	<-ctx.Done()
	return context.Cause(ctx)
}
