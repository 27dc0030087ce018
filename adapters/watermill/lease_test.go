package rotawatermill_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// cutOff is a backend whose heartbeats fail while cut is set, as for a process
// that lost the network or was stopped for a while.
type cutOff struct {
	core.Backend
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cutOff) Extend(ctx context.Context, queue string, leases []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Backend.Extend(ctx, queue, leases, lease)
}

const shortLease = 200 * time.Millisecond

// TestHeartbeat: a message in hand keeps its lease for many times its length.
func TestHeartbeat(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), topic, "g", "0", "1")
		const lease = 3 * shortLease // busy machines miss the heartbeats of shorter ones
		one := newSubscriber(t, b, rotawatermill.SubscriberConfig{Lease: lease})
		two := newSubscriber(t, b, rotawatermill.SubscriberConfig{Lease: lease})
		chOne := subscribe(t, one, topic)
		msg := receiveText(t, chOne, "0")
		first := rotawatermill.LeaseEndFromCtx(msg.Context())
		chTwo := subscribe(t, two, topic)
		receiveNone(t, chTwo, 3*lease)
		if msg.Context().Err() != nil {
			t.Fatal("the lease was lost")
		}
		if !rotawatermill.LeaseEndFromCtx(msg.Context()).After(first.Add(lease)) {
			t.Error("the lease's end did not move on")
		}
		msg.Ack()
		select {
		case msg = <-chOne:
		case msg = <-chTwo:
		case <-time.After(patience):
			t.Fatal("no message")
		}
		msg.Ack()
		if s := one.Stats(); s.AcksLost != 0 || s.LeasesLost != 0 {
			t.Errorf("counters %+v", s)
		}
	})
}

// TestLostLease: the context of a message that lost its lease ends with that cause;
// the next holder has the group for itself, and a late ack takes nothing from it.
func TestLostLease(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), topic, "g", "0", "1")
		away := &cutOff{Backend: b}
		one := newSubscriber(t, away, rotawatermill.SubscriberConfig{Lease: shortLease})
		two := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
		late := receiveText(t, subscribe(t, one, topic), "0")
		away.cut.Store(true)
		if err := one.Stop(); err != nil { // so that only two takes messages from now on
			t.Fatal(err)
		}
		ch := subscribe(t, two, topic)
		next := receiveText(t, ch, "0")
		// On one machine the store's clock and the worker's run out together.
		ended(t, late.Context().Done())
		if cause := context.Cause(late.Context()); !errors.Is(cause, core.ErrLeaseLost) {
			t.Errorf("cause %v, want ErrLeaseLost", cause)
		}
		if rotawatermill.FenceFromCtx(next.Context()) <= rotawatermill.FenceFromCtx(late.Context()) {
			t.Error("the fence did not grow")
		}
		if !late.Ack() {
			t.Error("the ack answers false")
		}
		eventually(t, "the late ack is counted", func() bool { return one.Stats().AcksLost == 1 })
		receiveNone(t, ch, 2*shortLease) // 1 must wait: the late ack freed nothing
		if next.Context().Err() != nil {
			t.Error("the late ack took the next holder's lease")
		}
		next.Nack() // and removed nothing
		receiveText(t, ch, "0").Ack()
		receiveText(t, ch, "1").Ack()
		if s := one.Stats(); s.LeasesLost != 1 || s.Acked != 0 {
			t.Errorf("counters %+v", s)
		}
		if s := two.Stats(); s.AcksLost != 0 || s.LeasesLost != 0 {
			t.Errorf("counters of the next holder %+v", s)
		}
	})
}

// TestAckLostOnTheWay: the lease is lost between the ack and its arrival.
func TestAckLostOnTheWay(t *testing.T) {
	b := newMemory(t)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0")
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
	msg := receive(t, subscribe(t, sub, "t"))
	if err := b.DeleteQueue(t.Context(), "t", true); err != nil {
		t.Fatal(err)
	}
	msg.Ack()
	eventually(t, "the lost ack is counted", func() bool { return sub.Stats().AcksLost == 1 })
}

// TestMaxHandling: a message that nobody acks is delivered again, and the late ack
// of the first delivery is counted, however late.
func TestMaxHandling(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), topic, "g", "0")
		sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{Lease: shortLease, MaxHandling: 2 * shortLease, PollInterval: 50 * time.Millisecond})
		ch := subscribe(t, sub, topic)
		forgotten := receiveText(t, ch, "0")
		start := time.Now()
		ended(t, forgotten.Context().Done())
		if took := time.Since(start); took < 2*shortLease-50*time.Millisecond {
			t.Errorf("given up after %s", took)
		}
		if cause := context.Cause(forgotten.Context()); !errors.Is(cause, core.ErrLeaseLost) {
			t.Errorf("cause %v", cause)
		}
		again := receiveText(t, ch, "0")
		if rotawatermill.AttemptFromCtx(again.Context()) < 2 {
			t.Error("the attempt was not counted")
		}
		forgotten.Ack()
		eventually(t, "the late ack is counted", func() bool { return sub.Stats().AcksLost == 1 })
		again.Ack()
		eventually(t, "the second ack counts", func() bool { return sub.Stats().Acked == 1 })
	})
}

// TestForgottenAtClose: the watch over a message that lost its lease ends at Close,
// and its Ack answers false from then on.
func TestForgottenAtClose(t *testing.T) {
	b := newMemory(t)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0")
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{Lease: shortLease, MaxHandling: time.Millisecond, PollInterval: 50 * time.Millisecond})
	ch := subscribe(t, sub, "t")
	forgotten := receive(t, ch)
	receive(t, ch).Ack() // the redelivery: the first one was given up
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
	if forgotten.Ack() {
		t.Error("the ack answers true")
	}
}
