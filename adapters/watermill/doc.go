// Package rotawatermill is a Watermill Pub/Sub that keeps order per key and still
// handles many keys at once: a message.Publisher and a message.Subscriber over any
// rota backend. Router, middleware, CQRS and the other components of Watermill run
// unchanged on top; only the constructors differ.
//
//	pub, err := rotawatermill.NewPublisher(backend, rotawatermill.PublisherConfig{})
//	sub, err := rotawatermill.NewSubscriber(backend, rotawatermill.SubscriberConfig{ConsumerGroup: "billing"})
//
// # Groups
//
// Each message belongs to a group, which [PublisherConfig].GroupKey names: an
// order, a customer, an account. Messages of one group are delivered in publish
// order, the next one when the one before is acked, whoever subscribes. Messages of
// up to MaxInFlight groups are in hand at once on the one channel, and the Router
// starts a goroutine for each. Groups take turns, so a busy one starves none.
//
// A nacked message keeps its place: its group waits until NackDelay is over (or
// goes on without it, see OnFailure), other groups go on. The next subscriber may
// be in another process.
//
// # Topics and consumer groups
//
// Without a consumer group a topic is one queue that all subscribers share. With
// one, each consumer group bound to the topic has a queue of its own, named
// "topic@group", and gets a copy of each message: one publish writes all copies or
// none. Binding happens with the first subscription, with SubscribeInitialize or
// with [Bind], is durable, and ends with [Unbind] only.
//
// # What is promised
//
// Delivery is at least once: a handler may see a message again when its process
// died, or lost the store for longer than the lease. While a message is neither
// acked nor nacked its lease is renewed; when it is lost anyway, the message's
// context ends with cause core.ErrLeaseLost, a late ack changes nothing, and it is
// counted ([Stats].AcksLost). Handlers should heed their context. Those that must
// not do work twice can hand [FenceFromCtx] to the systems they write to.
//
// docs/watermill.md has the whole configuration, what happens at shutdown, and how
// this compares with other Pub/Subs.
package rotawatermill
