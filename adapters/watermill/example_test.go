package rotawatermill_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/backends/memory"
)

// A stock Router. Messages of one order are handled one after the other, in the
// order of their publishing; different orders at once.
func Example() {
	backend := memory.New(memory.Options{}) // or rotaredis.Open(ctx, url, ...)
	defer backend.Close()
	pub, err := rotawatermill.NewPublisher(backend, rotawatermill.PublisherConfig{
		GroupKey: rotawatermill.MetadataGroupKey("order_id"),
	})
	if err != nil {
		panic(err)
	}
	sub, err := rotawatermill.NewSubscriber(backend, rotawatermill.SubscriberConfig{ConsumerGroup: "billing"})
	if err != nil {
		panic(err)
	}

	router := message.NewDefaultRouter(watermill.NopLogger{})
	done := make(chan struct{})
	router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
		fmt.Println(rotawatermill.GroupFromCtx(msg.Context()), string(msg.Payload))
		if string(msg.Payload) == "shipped" {
			close(done)
		}
		return nil // acks; an error nacks
	})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running() // from here on "billing" is bound to "orders"

	for _, event := range []string{"placed", "paid", "shipped"} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(event))
		msg.Metadata.Set("order_id", "A-17")
		if err := pub.Publish("orders", msg); err != nil {
			panic(err)
		}
	}
	<-done
	if err := router.Close(); err != nil {
		panic(err)
	}
	// Output:
	// A-17 placed
	// A-17 paid
	// A-17 shipped
}

// Consumer groups of a topic and how far behind they are.
func ExampleBindings() {
	ctx := context.Background()
	backend := memory.New(memory.Options{})
	defer backend.Close()
	for _, group := range []string{"billing", "shipping"} {
		if err := rotawatermill.Bind(ctx, backend, "orders", group); err != nil {
			panic(err)
		}
	}
	pub, err := rotawatermill.NewPublisher(backend, rotawatermill.PublisherConfig{})
	if err != nil {
		panic(err)
	}
	if err := pub.Publish("orders", message.NewMessage("1", []byte("placed"))); err != nil {
		panic(err)
	}
	bindings, err := rotawatermill.Bindings(ctx, backend, "orders")
	if err != nil {
		panic(err)
	}
	for _, b := range bindings {
		fmt.Println(b.ConsumerGroup, b.Lag)
	}
	// Output:
	// billing 1
	// shipping 1
}
