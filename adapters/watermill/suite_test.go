package rotawatermill_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// features is what the adapter declares to Watermill's universal suite.
var features = tests.Features{
	ConsumerGroups:                      true,
	ExactlyOnceDelivery:                 false, // leases are at-least-once; it also keeps the tests of loss on
	GuaranteedOrder:                     true,
	GuaranteedOrderWithSingleSubscriber: false, // order holds with many
	Persistent:                          true,
	RequireSingleInstance:               false,
	NewSubscriberReceivesOldMessages:    false, // a consumer group starts as it is bound
	ContextPreserved:                    false,
}

// suiteMode is a way to run the suite.
type suiteMode struct {
	name     string
	groupKey func(topic string, msg *message.Message) (string, error)
	// defaultGroup is the consumer group of subscribers that ask for none.
	defaultGroup string
}

var suiteModes = []suiteMode{
	{"groups_by_payload", payloadKey, "default"},
	{"one_group", constantKey, "default"},
	{"queues", payloadKey, ""},
}

func payloadKey(_ string, msg *message.Message) (string, error) { return string(msg.Payload), nil }
func constantKey(string, *message.Message) (string, error)      { return "all", nil }

func (m suiteMode) features() tests.Features {
	f := features
	f.ConsumerGroups = m.defaultGroup != ""
	return f
}

func (m suiteMode) constructors(backend core.Backend) (tests.PubSubConstructor, tests.ConsumerGroupPubSubConstructor) {
	withGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		pub, err := rotawatermill.NewPublisher(backend, rotawatermill.PublisherConfig{GroupKey: m.groupKey})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := rotawatermill.NewSubscriber(backend, rotawatermill.SubscriberConfig{ConsumerGroup: group})
		if err != nil {
			t.Fatal(err)
		}
		// TestPublishSubscribeInOrder does not close its subscribers.
		t.Cleanup(func() { _ = sub.Close() })
		return pub, sub
	}
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		return withGroup(t, m.defaultGroup)
	}, withGroup
}

// suite is Watermill's TestPubSub or TestPubSubStressTest.
type suite func(*testing.T, tests.Features, tests.PubSubConstructor, tests.ConsumerGroupPubSubConstructor)

func runSuite(t *testing.T, run suite) {
	for _, one := range testBackends {
		for _, mode := range suiteModes {
			t.Run(one.name+","+mode.name, func(t *testing.T) {
				if one.name == "memory" {
					t.Parallel() // a server is used by one mode at a time
				}
				backend := one.open(t)
				start := time.Now()
				t.Cleanup(func() { t.Logf("wall time %s", time.Since(start).Round(10*time.Millisecond)) })
				newPubSub, newWithGroup := mode.constructors(backend)
				f := mode.features()
				// With the race detector, 5,000 messages of one group through 50
				// competing subscribers take minutes on a small machine.
				f.ForceShort = raceEnabled && one.name != "memory"
				run(t, f, newPubSub, newWithGroup)
			})
		}
	}
}

// TestSuite runs Watermill's universal suite, as it is shipped.
func TestSuite(t *testing.T) { runSuite(t, tests.TestPubSub) }
