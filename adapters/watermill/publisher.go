package rotawatermill

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
)

// Publisher publishes messages. Make it with [NewPublisher]; it is safe for
// concurrent use.
//
// It needs no mode: a message goes to every consumer group bound to its topic,
// or, when there is none, where [PublisherConfig].NoBinding says.
type Publisher struct {
	backend core.Producer
	cfg     PublisherConfig

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher makes a publisher over a backend. It answers a *core.InvalidError
// for a nil backend or an unknown policy.
func NewPublisher(backend core.Producer, cfg PublisherConfig) (*Publisher, error) {
	if err := checkBackend(backend); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{backend: backend, cfg: cfg}, nil
}

// Publish stores the messages; when it returns without an error the store has
// them. The messages of one call are stored together or not at all, as one batch
// (of up to core.MaxPublishBatch: longer calls are cut into several). An error
// that the store did not answer itself, such as a broken connection, leaves open
// whether they were stored.
//
// It runs under the context of the first message and ends early when the context
// of any of them ends. Delay metadata (components/delay) delays a message on the
// store's clock. The messages are not changed.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if err := p.begin(); err != nil {
		return err
	}
	defer p.running.Done()
	if err := checkTopic(topic); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	jobs := make([]core.NewJob, len(messages))
	for i, msg := range messages {
		var err error
		if jobs[i], err = p.job(topic, msg); err != nil {
			return publishError(topic, msg, err)
		}
	}
	for len(jobs) > 0 {
		n := min(len(jobs), core.MaxPublishBatch)
		if err := p.store(topic, messages[:n], jobs[:n]); err != nil {
			return err
		}
		messages, jobs = messages[n:], jobs[n:]
	}
	return nil
}

// Close makes further Publish calls fail with core.ErrClosed and waits for those
// that run. It leaves the backend open: the Router closes a handler's publisher
// when its subscription ends. Idempotent.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

func (p *Publisher) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("publisher: %w", core.ErrClosed)
	}
	p.running.Add(1)
	return nil
}

// job makes the job of a message. Attempts have no end here: how many there are
// is for each consumer group to say, see [SubscriberConfig].MaxAttempts.
func (p *Publisher) job(topic string, msg *message.Message) (core.NewJob, error) {
	if msg == nil {
		return core.NewJob{}, core.Invalid("message", nil, "is nil")
	}
	group, err := p.cfg.group(topic, msg)
	if err != nil {
		return core.NewJob{}, err
	}
	job := core.NewJob{
		Topic: topic, Group: group, Payload: msg.Payload, Headers: encode(msg), MaxAttempts: core.Unlimited,
	}
	if p.cfg.NoBinding == NoBindingKeep {
		job.Queue = topic
	}
	if err := applyDelay(msg.Metadata, &job); err != nil {
		return core.NewJob{}, err
	}
	if p.cfg.EditJob != nil {
		err = p.cfg.EditJob(topic, msg, &job)
	}
	return job, err
}

// store publishes one batch.
func (p *Publisher) store(topic string, messages []*message.Message, jobs []core.NewJob) error {
	for _, msg := range messages {
		if ctx := msg.Context(); ctx.Err() != nil {
			return publishError(topic, msg, context.Cause(ctx))
		}
	}
	ctx, stop := contextOf(messages)
	defer stop()
	results, err := p.backend.Publish(ctx, core.PublishRequest{Jobs: jobs})
	if err != nil {
		return fmt.Errorf("publish to topic %q: %w", topic, err)
	}
	var errs []error
	for i, res := range results {
		if res.Err != nil && !(p.cfg.NoBinding == NoBindingDrop && errors.Is(res.Err, core.ErrNoBinding)) {
			errs = append(errs, publishError(topic, messages[i], res.Err))
		}
	}
	return errors.Join(errs...)
}

func publishError(topic string, msg *message.Message, err error) error {
	if msg == nil {
		return fmt.Errorf("publish to topic %q: %w", topic, err)
	}
	return fmt.Errorf("publish message %q to topic %q: %w", msg.UUID, topic, err)
}

// contextOf gives the context of the first message, made to end when that of any
// other ends. Messages of one call mostly share a parent, and then this costs
// nothing.
func contextOf(messages []*message.Message) (context.Context, func()) {
	ctx := messages[0].Context()
	seen := map[<-chan struct{}]bool{nil: true, ctx.Done(): true}
	var others []context.Context
	for _, msg := range messages[1:] {
		if done := msg.Context().Done(); !seen[done] {
			seen[done] = true
			others = append(others, msg.Context())
		}
	}
	if len(others) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stops := make([]func() bool, len(others))
	for i, other := range others {
		stops[i] = context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}
