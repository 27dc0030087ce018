package rotawatermill

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
)

// Subscriber hands out messages. Make it with [NewSubscriber]; it is safe for
// concurrent use, and one value may subscribe to many topics.
type Subscriber struct {
	backend core.Backend
	cfg     SubscriberConfig
	count   counters

	// life ends with Stop and Close, and with it Subscribe calls on their way.
	life    context.Context
	endLife context.CancelFunc

	mu      sync.Mutex
	stopped bool
	closed  bool
	subs    map[*subscription]struct{}
	// pending are Subscribe calls on their way; Close waits for them.
	pending sync.WaitGroup
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber makes a subscriber over a backend. It answers a
// *core.InvalidError for a nil backend, a value out of range, an unknown policy or
// a consumer group whose name can not be one.
func NewSubscriber(backend core.Backend, cfg SubscriberConfig) (*Subscriber, error) {
	if err := checkBackend(backend); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{backend: backend, cfg: cfg, subs: make(map[*subscription]struct{})}
	s.life, s.endLife = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize prepares a topic without reading from it: it binds the
// consumer group, so that messages published from now on are kept for it, and
// writes the policies of the configuration. Subscribe does it too. It is
// idempotent, and safe to call at once from many processes.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.pending.Done()
	_, err := s.initialize(s.life, topic)
	return err
}

// Subscribe gives a channel with the messages of a topic: at most one un-acked
// message of each group, and of up to MaxInFlight groups at once. Ack ends a
// message. Nack has it delivered again, as a new message value, after NackDelay.
// The context of a message has the values of ctx and what [JobFromCtx] and its
// neighbours read. It ends on Ack and Nack, when the lease is lost (cause
// core.ErrLeaseLost), when a person cancels the job (core.ErrCancelled), and when
// the subscription closes and DrainTimeout is over (worker.ErrStopping).
//
// When ctx ends, this subscription ends as with Close; others go on. A ctx that
// has ended already, a topic no queue can have, and a closed subscriber are
// errors, and so is whatever the store answers to the binding.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.pending.Done()
	setup, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	queue, err := s.initialize(setup, topic)
	if err != nil {
		return nil, err
	}
	sub, err := newSubscription(s, ctx, topic, queue)
	if err != nil {
		return nil, fmt.Errorf("subscribe to topic %q: %w", topic, err)
	}
	s.mu.Lock()
	s.subs[sub] = struct{}{}
	stopped := s.stopped
	s.mu.Unlock()
	if stopped { // meanwhile
		sub.stop()
	}
	go sub.closeAfter(ctx)
	return sub.out, nil
}

// Stop ends the delivery of new messages: none is sent on a channel after Stop has
// returned, and those that wait to be received go back to the store. Messages in
// hand can still be acked and nacked, for as long as it takes; then call Close,
// which closes the channels. Stop does not wait. It is what Watermill's proposed
// Stoppable interface asks for. Idempotent.
func (s *Subscriber) Stop() error {
	for _, sub := range s.end(false) {
		sub.stop()
	}
	return nil
}

// Close ends all subscriptions, and returns when their channels are closed and
// their messages are settled. Messages that nobody has received yet go back to the
// store at once, without an attempt spent. For those in hand it waits up to
// DrainTimeout, and acks and nacks count as usual; then their contexts end with
// cause worker.ErrStopping, and what is not acked a second later is given back too: if a
// handler still runs then, the next subscriber may run beside it.
//
// Idempotent, and safe to call at once from many goroutines: all of them wait. The
// backend stays open. An error tells that some messages could not be given back;
// they come back when their leases run out.
func (s *Subscriber) Close() error {
	subs := s.end(true)
	for _, sub := range subs {
		sub.stop()
	}
	errs := make([]error, len(subs))
	var wait sync.WaitGroup
	for i, sub := range subs {
		wait.Go(func() { errs[i] = sub.close() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Stats counts what happened since the subscriber was made. The counters grow.
func (s *Subscriber) Stats() Stats { return s.count.read() }

// begin notes a call that Close has to wait for.
func (s *Subscriber) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.stopped {
		return fmt.Errorf("subscriber: %w", core.ErrClosed)
	}
	s.pending.Add(1)
	return nil
}

// end refuses new subscriptions and gives those there are, after those on their
// way have arrived.
func (s *Subscriber) end(closing bool) []*subscription {
	s.mu.Lock()
	s.stopped = true
	s.closed = s.closed || closing
	s.mu.Unlock()
	s.endLife()
	s.pending.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := make([]*subscription, 0, len(s.subs))
	for sub := range s.subs {
		subs = append(subs, sub)
	}
	return subs
}

// forget is called by a subscription that has ended.
func (s *Subscriber) forget(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, sub)
}

// initialize binds and configures, and gives the queue of a topic.
func (s *Subscriber) initialize(ctx context.Context, topic string) (string, error) {
	queue, err := QueueName(topic, s.cfg.ConsumerGroup)
	if err != nil {
		return "", fmt.Errorf("subscribe: %w", err)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("subscribe to topic %q: %w", topic, context.Cause(ctx))
	}
	if s.cfg.ConsumerGroup != "" {
		if err := Bind(ctx, s.backend, topic, s.cfg.ConsumerGroup); err != nil {
			return "", err
		}
	}
	if err := s.configure(ctx, queue); err != nil {
		return "", fmt.Errorf("configure queue %q: %w", queue, err)
	}
	return queue, nil
}

// configure writes the policies that are set into the queue's configuration,
// unless they are there.
func (s *Subscriber) configure(ctx context.Context, queue string) error {
	if s.cfg.OnFailure == core.FailureDefault && s.cfg.OnExhausted == core.ExhaustedDefault {
		return nil
	}
	info, err := s.backend.QueueInfo(ctx, queue)
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		return err
	}
	want := info.Config
	if s.cfg.OnFailure != core.FailureDefault {
		want.OnFailure = s.cfg.OnFailure
	}
	if s.cfg.OnExhausted != core.ExhaustedDefault {
		want.OnExhausted = s.cfg.OnExhausted
	}
	if err == nil && want == info.Config {
		return nil
	}
	return s.backend.Configure(ctx, queue, want)
}
