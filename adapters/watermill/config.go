package rotawatermill

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// Defaults of [SubscriberConfig].
const (
	DefaultMaxInFlight  = 16
	DefaultLease        = worker.DefaultLease
	DefaultDrainTimeout = 5 * time.Second
	DefaultNackDelay    = 50 * time.Millisecond // up to twice as long, at random
)

// NoBindingPolicy says what becomes of a message on a topic that no consumer
// group is bound to.
type NoBindingPolicy uint8

const (
	// NoBindingKeep keeps it in the topic's own queue, where subscribers without a
	// consumer group read. It is the default: in queue mode this is the way all
	// messages go, and in group mode nothing is lost.
	NoBindingKeep NoBindingPolicy = iota
	// NoBindingError refuses to publish it, with core.ErrNoBinding.
	NoBindingError
	// NoBindingDrop drops it without an error, as a broadcast that nobody hears.
	NoBindingDrop
)

// PublisherConfig says how a [Publisher] turns messages into jobs. Every zero
// value is a usable default.
type PublisherConfig struct {
	// GroupKey names the group of a message: messages of one group are delivered
	// in publish order, one at a time. Nil means [DefaultGroupKey]. Called by many
	// goroutines at once; it must not change the message. A key must be valid
	// UTF-8 of at most core.MaxGroupName bytes without control characters.
	GroupKey func(topic string, msg *message.Message) (string, error)
	// NoKey says what becomes of a message whose group key is empty.
	NoKey NoKeyPolicy
	// NoBinding says what becomes of a message on a topic that no consumer group
	// is bound to.
	NoBinding NoBindingPolicy
	// EditJob, when set, may change the job before it is stored: priority, dedup
	// key, deadline, retention, policies. It must leave the payload, the headers
	// and where the job goes as they are. An error refuses the whole Publish call.
	EditJob func(topic string, msg *message.Message, job *core.NewJob) error
}

func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	if c.GroupKey == nil {
		c.GroupKey = DefaultGroupKey
	}
	switch {
	case c.NoKey > NoKeyError:
		return c, core.Invalid("no-key policy", uint8(c.NoKey), "is unknown")
	case c.NoBinding > NoBindingDrop:
		return c, core.Invalid("no-binding policy", uint8(c.NoBinding), "is unknown")
	}
	return c, nil
}

// SubscriberConfig says how a [Subscriber] takes messages. Every zero value is a
// usable default.
type SubscriberConfig struct {
	// ConsumerGroup names the group of subscribers that share the messages: each
	// group bound to a topic gets a copy of each message. Empty: all subscribers
	// of a topic share its one queue.
	ConsumerGroup string
	// MaxInFlight is how many un-acked messages one Subscribe call hands out at
	// once, each of another group (or without one). The Router handles them
	// concurrently. 0 means DefaultMaxInFlight. Code that reads the channel with a
	// loop that handles one message at a time should set it to 1, because messages
	// that wait in the channel keep their groups from other subscribers.
	MaxInFlight int

	// Lease is how long the store waits for a sign of life of this process before
	// it gives a message to another one. It is renewed while a message is neither
	// acked nor nacked, so it does not bound the handling. 0 means DefaultLease;
	// at least core.MinLease.
	Lease time.Duration
	// MaxHandling bounds the handling: that long after it was taken from the store
	// the message's lease is renewed no more; at most one Lease later its context ends with
	// cause core.ErrLeaseLost, and it is delivered again. 0 means never: then a
	// message that is neither acked nor nacked holds its group until Close.
	MaxHandling time.Duration
	// PollInterval is how often an idle subscription asks the store when no hint
	// arrives. 0 means worker.DefaultPollInterval.
	PollInterval time.Duration

	// NackDelay is the wait before a nacked message is delivered again; attempt is
	// the one that failed, 1 for the first. Delay metadata that the handler has set
	// on the message (middleware.DelayOnError) goes before it. Nil means a random
	// wait of DefaultNackDelay to twice that, whatever the attempt. Negative
	// results count as zero.
	NackDelay func(attempt int) time.Duration
	// MaxAttempts makes a message a dead letter when it is nacked that often, or
	// when its subscriber died that often. 0 means there is no end.
	MaxAttempts int
	// OnFailure says whether a group waits for its nacked message (core.Block, the
	// default) or goes on without it (core.Skip). OnExhausted says whether a group
	// goes on after a dead letter (core.DeadLetter, the default) or is held for a
	// person (core.Hold). They are settings of the queue: where set, subscribing
	// writes them to the store, for all subscribers of the topic and group. Zero
	// leaves the queue's settings as they are.
	OnFailure   core.FailurePolicy
	OnExhausted core.ExhaustedPolicy

	// DrainTimeout is how long Close, and the end of Subscribe's context, wait for
	// messages in hand before their contexts end. 0 means DefaultDrainTimeout,
	// core.None not at all. It should be shorter than the Router's CloseTimeout.
	DrainTimeout time.Duration

	// Owner is the subscriber's name, for people. Empty: host, process and a
	// random part.
	Owner string
	// Logger; nil logs nothing.
	Logger watermill.LoggerAdapter
}

func (c SubscriberConfig) withDefaults() (SubscriberConfig, error) {
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.NackDelay == nil {
		c.NackDelay = func(int) time.Duration { return DefaultNackDelay + rand.N(DefaultNackDelay) }
	}
	switch c.DrainTimeout {
	case 0:
		c.DrainTimeout = DefaultDrainTimeout
	case core.None:
		c.DrainTimeout = 0
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
	if c.ConsumerGroup != "" {
		if err := checkConsumerGroup(c.ConsumerGroup); err != nil {
			return c, err
		}
	}
	switch {
	case c.MaxInFlight < 0 || c.MaxInFlight > worker.MaxConcurrency:
		return c, core.Invalid("max in flight", c.MaxInFlight, fmt.Sprintf("is not between 1 and %d", worker.MaxConcurrency))
	case c.MaxHandling < 0:
		return c, core.Invalid("max handling", c.MaxHandling, "is negative")
	case c.PollInterval != 0 && c.PollInterval < time.Millisecond:
		return c, core.Invalid("poll interval", c.PollInterval, "is shorter than a millisecond")
	case c.PollInterval > core.MaxDelay:
		return c, core.Invalid("poll interval", c.PollInterval, "is longer than 100 years")
	case c.MaxAttempts < 0:
		return c, core.Invalid("max attempts", c.MaxAttempts, "is negative")
	case c.DrainTimeout < 0:
		return c, core.Invalid("drain timeout", c.DrainTimeout, "is negative")
	}
	claim := core.ClaimRequest{Queue: "any", Max: 1, Lease: c.Lease, Owner: c.Owner}
	if err := claim.Validate(); err != nil {
		return c, err
	}
	return c, core.QueueConfig{OnFailure: c.OnFailure, OnExhausted: c.OnExhausted}.Validate()
}

// checkBackend refuses a nil backend, also a nil pointer in an interface.
func checkBackend(b any) error {
	if v := reflect.ValueOf(b); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return core.Invalid("backend", nil, "is nil")
	}
	return nil
}
