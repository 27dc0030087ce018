package rotawatermill_test

import (
	"testing"
	"testing/synctest"
	"time"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
)

// No message can come any more from a backend that is closed: the channel is
// closed too, also while a message is in hand, and other subscriptions may end as
// they like.
func TestTheBackendIsClosed(t *testing.T) {
	for name, inHand := range map[string]bool{"idle": false, "in hand": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newMemory(t)
				sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{DrainTimeout: time.Minute})
				ch := subscribe(t, sub, "t")
				if inHand {
					publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0")
					msg := receiveText(t, ch, "0")
					go func() {
						<-msg.Context().Done()
						msg.Nack()
					}()
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if !isClosed(ch) {
					t.Error("the channel is open")
				}
				if err := sub.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
