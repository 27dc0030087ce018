package rotawatermill_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"pgregory.net/rapid"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// TestMessageArrivesAsItWas covers every byte that metadata and UUID may have.
func TestMessageArrivesAsItWas(t *testing.T) {
	for name, sent := range map[string]*message.Message{
		"plain":                            {UUID: "u", Metadata: message.Metadata{"a": "b", "ä": "ö", "empty": ""}, Payload: []byte("x")},
		"no uuid, no metadata, no payload": {},
		"bytes": {UUID: "\xff\x00u", Metadata: message.Metadata{
			"": "no name", "\xfe": "name", "value": "\xff\xfe", "nul": "a\x00b", "\x00": "\x00",
		}, Payload: []byte{0, 0xff, '\n'}},
		"reserved names": {UUID: "u", Metadata: message.Metadata{
			"_rota_wm_uuid": "mine", "_rota_wm_uuid64": "mine", "_rota_wm_b64_": "mine", "_rota_wm_b64_YQ": "mine",
			"_rota_wm_asked": "mine", "_rota_wm_other": "mine", "a": "b",
		}},
		"not base64": {UUID: "!", Metadata: message.Metadata{"_rota_wm_b64_!": "!"}},
	} {
		t.Run(name, func(t *testing.T) { roundTrip(t, sent) })
	}
	rapid.Check(t, func(rt *rapid.T) {
		bytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		names := rapid.OneOf(bytes, rapid.String(), rapid.SampledFrom([]string{"_rota_wm_uuid", "_rota_wm_uuid64", "_rota_wm_b64_YQ", "a"}))
		roundTrip(t, &message.Message{
			UUID:     bytes.Draw(rt, "uuid"),
			Metadata: rapid.MapOf(names, bytes).Draw(rt, "metadata"),
			Payload:  rapid.SliceOf(rapid.Byte()).Draw(rt, "payload"),
		})
	})
}

func roundTrip(t *testing.T, sent *message.Message) {
	t.Helper()
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	before := sent.Copy()
	hadMetadata := sent.Metadata != nil
	if err := pub.Publish("t", sent); err != nil {
		t.Fatal(err)
	}
	if !sent.Equals(before) || (sent.Metadata != nil) != hadMetadata {
		t.Fatalf("publishing changed the message: %+v", sent)
	}
	sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{})
	got := receive(t, subscribe(t, sub, "t"))
	got.Ack()
	if got.UUID != sent.UUID || string(got.Payload) != string(sent.Payload) || !maps.Equal(got.Metadata, sent.Metadata) {
		t.Fatalf("sent %q %q %q, received %q %q %q", sent.UUID, sent.Metadata, sent.Payload, got.UUID, got.Metadata, got.Payload)
	}
	if got.Metadata == nil {
		t.Fatal("metadata is nil: handlers could not set any")
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestForeignJob: a job that some other program published is delivered too.
func TestForeignJob(t *testing.T) {
	b := newMemory(t)
	_, err := core.Publish(t.Context(), b, core.NewJob{Queue: "t", ID: "job-1", Payload: []byte("x"), Headers: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	msg := receive(t, subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t"))
	msg.Ack()
	if msg.UUID != "job-1" || !reflect.DeepEqual(msg.Metadata, message.Metadata{"a": "b"}) {
		t.Fatalf("received %q %v", msg.UUID, msg.Metadata)
	}
}

// TestSameUUIDTwice: poison queues and requeuers publish a UUID again.
func TestSameUUIDTwice(t *testing.T) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	msg := newMessage("g", "x")
	if err := errors.Join(pub.Publish("t", msg, msg), pub.Publish("t", msg)); err != nil {
		t.Fatal(err)
	}
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t")
	for range 3 {
		got := receive(t, ch)
		if got.UUID != msg.UUID {
			t.Fatalf("UUID %q", got.UUID)
		}
		got.Ack()
	}
}

// TestBatchOrder: one call keeps its order, also over the size of a core batch.
func TestBatchOrder(t *testing.T) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	const n = core.MaxPublishBatch + 10
	batch := make([]*message.Message, n)
	for i := range batch {
		batch[i] = newMessage("g", fmt.Sprint(i))
	}
	if err := pub.Publish("t", batch...); err != nil {
		t.Fatal(err)
	}
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t")
	for i := range n {
		receiveText(t, ch, fmt.Sprint(i)).Ack()
	}
}

// TestOneCallIsOneBatch: the messages of a call are stored together.
func TestOneCallIsOneBatch(t *testing.T) {
	b := &recorder{Producer: newMemory(t)}
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	publish(t, pub, "t", "g", "0", "1", "2")
	if len(b.sizes) != 1 || b.sizes[0] != 3 {
		t.Fatalf("batches of %v", b.sizes)
	}
	if err := pub.Publish("t"); err != nil || len(b.sizes) != 1 {
		t.Fatalf("publishing nothing: %v, batches of %v", err, b.sizes)
	}
}

type recorder struct {
	core.Producer
	sizes []int
	ctx   context.Context
}

func (r *recorder) Publish(ctx context.Context, req core.PublishRequest) ([]core.PublishResult, error) {
	r.sizes, r.ctx = append(r.sizes, len(req.Jobs)), ctx
	return r.Producer.Publish(ctx, req)
}

func TestPublishContext(t *testing.T) {
	b := &recorder{Producer: newMemory(t)}
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	first, second, third := newMessage("g", "0"), newMessage("g", "1"), newMessage("g", "2")
	first.SetContext(context.WithValue(parent, key{}, "first"))
	second.SetContext(context.WithValue(parent, key{}, "second"))
	if err := pub.Publish("t", first, second); err != nil {
		t.Fatal(err)
	}
	if v := b.ctx.Value(key{}); v != "first" {
		t.Fatalf("published under a context with %v", v)
	}
	other, cancelOther := context.WithCancel(context.Background())
	third.SetContext(other)
	if err := pub.Publish("t", first, third); err != nil {
		t.Fatal(err)
	}
	cancelOther()
	if err := pub.Publish("t", first, third); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want that the context ended", err)
	}
	cancel()
	if err := pub.Publish("t", first); !errors.Is(err, context.Canceled) || len(b.sizes) != 2 {
		t.Fatalf("error %v, batches of %v", err, b.sizes)
	}
}

// TestPublishContextEndsLate: the end of any message's context ends the call.
func TestPublishContextEndsLate(t *testing.T) {
	b := &stuckProducer{entered: make(chan struct{})}
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	first, second := newMessage("g", "0"), newMessage("g", "1")
	second.SetContext(ctx)
	result := make(chan error)
	go func() { result <- pub.Publish("t", first, second) }()
	<-b.entered
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
}

// stuckProducer answers only when its context ends.
type stuckProducer struct{ entered chan struct{} }

func (s *stuckProducer) Publish(ctx context.Context, _ core.PublishRequest) ([]core.PublishResult, error) {
	close(s.entered)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestPublisherClose: Close waits for calls, leaves the backend open and ends the
// publisher for good.
func TestPublisherClose(t *testing.T) {
	stuck := &stuckProducer{entered: make(chan struct{})}
	pub := newPublisher(t, stuck, rotawatermill.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	msg := newMessage("g", "x")
	msg.SetContext(ctx)
	go func() { _ = pub.Publish("t", msg) }()
	<-stuck.entered
	closed := make(chan error)
	go func() { closed <- pub.Close() }()
	select {
	case <-closed:
		t.Fatal("Close did not wait for a call on its way")
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if err := pub.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pub.Publish("t", msg); !errors.Is(err, core.ErrClosed) {
		t.Fatalf("error %v, want ErrClosed", err)
	}

	b := newMemory(t)
	if err := newPublisher(t, b, rotawatermill.PublisherConfig{}).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Now(t.Context()); err != nil {
		t.Fatalf("the backend is closed: %v", err)
	}
}

func TestEditJob(t *testing.T) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{EditJob: func(topic string, msg *message.Message, job *core.NewJob) error {
		if topic == "refused" {
			return errors.New("refused")
		}
		job.Priority = 3
		job.Dedup = core.Dedup{Key: msg.UUID, Window: time.Hour}
		return nil
	}})
	if err := pub.Publish("refused", newMessage("g", "x")); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("error %v", err)
	}
	msg := newMessage("g", "x")
	if err := pub.Publish("t", msg); err != nil {
		t.Fatal(err)
	}
	var dup *core.DuplicateError
	if err := pub.Publish("t", msg, newMessage("g", "y")); !errors.As(err, &dup) || !strings.Contains(err.Error(), msg.UUID) {
		t.Fatalf("error %v, want a duplicate that names the message", err)
	}
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{}), "t")
	got := receiveText(t, ch, "x")
	if p := rotawatermill.JobFromCtx(got.Context()).Priority; p != 3 {
		t.Fatalf("priority %d", p)
	}
	got.Ack()
	receiveText(t, ch, "y").Ack()
}
