package rotawatermill_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
)

// patience is how long a test waits for something that must happen.
const patience = 15 * time.Second

// newMemory makes a memory backend that is closed after the test.
func newMemory(t testing.TB) *memory.Backend {
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func newPublisher(t testing.TB, b core.Producer, cfg rotawatermill.PublisherConfig) *rotawatermill.Publisher {
	t.Helper()
	pub, err := rotawatermill.NewPublisher(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pub.Close() })
	return pub
}

// newSubscriber makes a subscriber that is closed after the test, and quickly:
// tests of Close say themselves how.
func newSubscriber(t testing.TB, b core.Backend, cfg rotawatermill.SubscriberConfig) *rotawatermill.Subscriber {
	t.Helper()
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 100 * time.Millisecond
	}
	sub, err := rotawatermill.NewSubscriber(b, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sub.Close(); err != nil {
			t.Errorf("close the subscriber: %v", err)
		}
	})
	return sub
}

func subscribe(t testing.TB, sub message.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	ch, err := sub.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// publish publishes payloads in one call, each with a new UUID, in a group.
func publish(t testing.TB, pub message.Publisher, topic, group string, payloads ...string) {
	t.Helper()
	var batch []*message.Message
	for _, payload := range payloads {
		batch = append(batch, newMessage(group, payload))
	}
	if err := pub.Publish(topic, batch...); err != nil {
		t.Fatal(err)
	}
}

func newMessage(group, payload string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
	if group != "" {
		msg.Metadata.Set(rotawatermill.GroupMetadata, group)
	}
	return msg
}

// receive takes the next message.
func receive(t testing.TB, ch <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-ch:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return msg
	case <-time.After(patience):
		t.Fatal("no message")
	}
	return nil
}

// receiveText takes the next message, which must have this payload.
func receiveText(t testing.TB, ch <-chan *message.Message, want string) *message.Message {
	t.Helper()
	msg := receive(t, ch)
	if got := string(msg.Payload); got != want {
		t.Fatalf("received %q, want %q", got, want)
	}
	return msg
}

// receiveNone makes sure that no message comes for d.
func receiveNone(t testing.TB, ch <-chan *message.Message, d time.Duration) {
	t.Helper()
	select {
	case msg, ok := <-ch:
		if ok {
			t.Fatalf("received %q, want nothing", msg.Payload)
		}
		t.Fatal("the channel is closed")
	case <-time.After(d):
	}
}

// isClosed reports whether a channel is closed now, without waiting.
func isClosed(ch <-chan *message.Message) bool {
	select {
	case _, open := <-ch:
		return !open
	default:
		return false
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come about: %s", what)
		}
	}
}

// ended waits for a context's end.
func ended(t testing.TB, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the context did not end")
	}
}

// ledger notes what was handled, by group, in the order of acks, and how many
// messages of one group were in hand at once.
type ledger struct {
	mu      sync.Mutex
	acked   map[string][]string
	inHand  map[string]int
	overlap int
}

func newLedger() *ledger {
	return &ledger{acked: map[string][]string{}, inHand: map[string]int{}}
}

func (l *ledger) start(group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inHand[group]++
	l.overlap = max(l.overlap, l.inHand[group])
}

func (l *ledger) end(group, payload string, acked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inHand[group]--
	if acked {
		l.acked[group] = append(l.acked[group], payload)
	}
}

func (l *ledger) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, list := range l.acked {
		n += len(list)
	}
	return n
}

// check compares with n messages "0", "1", ... in each of the groups.
func (l *ledger) check(t testing.TB, groups, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overlap > 1 {
		t.Errorf("%d messages of one group were in hand at once", l.overlap)
	}
	if len(l.acked) != groups {
		t.Errorf("%d groups were handled, want %d", len(l.acked), groups)
	}
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprint(i)
	}
	for group, got := range l.acked {
		if !slices.Equal(got, want) {
			t.Errorf("group %s was handled as %v, want 0 to %d in order", group, got, n-1)
		}
	}
}
