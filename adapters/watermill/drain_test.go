package rotawatermill_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// TestPublishWhileDraining: few groups that are emptied as fast as they are filled,
// so that publishing meets the drain of its group all the time. A message that is
// stranded never comes.
func TestPublishWhileDraining(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const groups, each = 3, 1000
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		l := newLedger()
		var readers sync.WaitGroup
		defer readers.Wait()
		for range 2 {
			sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{MaxInFlight: 4})
			ch := subscribe(t, sub, topic)
			readers.Go(func() {
				for msg := range ch {
					group := rotawatermill.GroupFromCtx(msg.Context())
					l.start(group)
					l.end(group, string(msg.Payload), true)
					msg.Ack()
				}
			})
			defer func() { _ = sub.Close() }()
		}
		var publishers sync.WaitGroup
		for g := range groups {
			publishers.Go(func() {
				for i := range each {
					publish(t, pub, topic, fmt.Sprint("g", g), fmt.Sprint(i))
					if rand.N(10) == 0 {
						time.Sleep(rand.N(time.Millisecond))
					}
				}
			})
		}
		publishers.Wait()
		eventually(t, "every message has come", func() bool { return l.total() >= groups*each })
		l.check(t, groups, each)
	})
}

// TestChurn: subscribers come and go while messages flow; nothing is lost, and no
// group is ever handled twice at once.
func TestChurn(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		const groups, each = 8, 60
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		for i := range each {
			for g := range groups {
				publish(t, pub, topic, fmt.Sprint("g", g), fmt.Sprint(i))
			}
		}
		l := newLedger()
		var subscribers sync.WaitGroup
		for range 4 {
			subscribers.Go(func() {
				for l.total() < groups*each && !t.Failed() {
					readFor(t, b, topic, l, rand.N(30*time.Millisecond))
				}
			})
		}
		subscribers.Wait()
		l.check(t, groups, each)
	})
}

// readFor subscribes, handles what comes, and closes after d.
func readFor(t *testing.T, b core.Backend, topic string, l *ledger, d time.Duration) {
	sub, err := rotawatermill.NewSubscriber(b, rotawatermill.SubscriberConfig{MaxInFlight: 3})
	if err != nil {
		t.Error(err)
		return
	}
	ch, err := sub.Subscribe(t.Context(), topic)
	if err != nil {
		t.Error(err)
		return
	}
	time.AfterFunc(d, func() { _ = sub.Stop() })
	timer := time.AfterFunc(d+time.Millisecond, func() { _ = sub.Close() })
	defer timer.Stop()
	var handlers sync.WaitGroup
	for msg := range ch {
		handlers.Go(func() {
			group := rotawatermill.GroupFromCtx(msg.Context())
			l.start(group)
			time.Sleep(rand.N(2 * time.Millisecond))
			l.end(group, string(msg.Payload), true)
			msg.Ack()
		})
	}
	handlers.Wait()
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}
