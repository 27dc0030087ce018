package rotawatermill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// Binding is a consumer group that gets a copy of each message of a topic.
type Binding struct {
	Topic         string
	ConsumerGroup string
	// Queue holds the group's messages; see [QueueName].
	Queue string
	// BoundAt is when the group was bound, on the store's clock.
	BoundAt time.Time
	// Lag counts the messages the group has not finished: waiting, delayed, in
	// hand or to be retried.
	Lag int64
	// Dead counts its dead letters.
	Dead int64
	// OldestWaiting is when the oldest message that waits in line was published;
	// zero when none does.
	OldestWaiting time.Time
}

// Bind makes a consumer group receive a copy of each message published to the
// topic from now on, whether or not anybody subscribes. It is durable and
// idempotent, and safe to call at once from many processes. Subscribing with
// [SubscriberConfig].ConsumerGroup does it too.
func Bind(ctx context.Context, b core.Binder, topic, consumerGroup string) error {
	queue, err := groupQueue(topic, consumerGroup)
	if err != nil {
		return err
	}
	if err := b.Bind(ctx, topic, queue); err != nil {
		return fmt.Errorf("bind consumer group %q to topic %q: %w", consumerGroup, topic, err)
	}
	return nil
}

// Unbind undoes [Bind]: the consumer group gets no more messages. Those it has
// stay in its queue until they are handled, or until Administrator.DeleteQueue
// removes the queue. A binding outlives its subscribers, so a consumer group that
// is given up for good must be unbound, or its queue grows for ever. Idempotent.
func Unbind(ctx context.Context, b core.Binder, topic, consumerGroup string) error {
	queue, err := groupQueue(topic, consumerGroup)
	if err != nil {
		return err
	}
	if err := b.Unbind(ctx, topic, queue); err != nil {
		return fmt.Errorf("unbind consumer group %q from topic %q: %w", consumerGroup, topic, err)
	}
	return nil
}

// Bindings lists the consumer groups bound to a topic with their lag, sorted by
// name. The lags are read one after the other and are not one snapshot.
func Bindings(ctx context.Context, b interface {
	core.Binder
	core.Inspector
}, topic string) ([]Binding, error) {
	if err := checkTopic(topic); err != nil {
		return nil, err
	}
	bound, err := b.Bindings(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("list the bindings of topic %q: %w", topic, err)
	}
	list := make([]Binding, 0, len(bound))
	for _, one := range bound {
		info, err := b.QueueInfo(ctx, one.Queue)
		if err != nil && !errors.Is(err, core.ErrNotFound) {
			return nil, fmt.Errorf("read the lag of queue %q: %w", one.Queue, err)
		}
		list = append(list, bindingOf(one, info))
	}
	return list, nil
}

func bindingOf(one core.Binding, info core.QueueInfo) Binding {
	_, group, _ := strings.Cut(one.Queue, "@")
	b := Binding{
		Topic: one.Topic, ConsumerGroup: group, Queue: one.Queue, BoundAt: one.CreatedAt,
		Dead: info.Jobs[core.StateDead], OldestWaiting: info.OldestPending,
	}
	for state, n := range info.Jobs {
		if core.Unfinished.Has(state) {
			b.Lag += n
		}
	}
	return b
}

func groupQueue(topic, consumerGroup string) (string, error) {
	if consumerGroup == "" {
		return "", core.Invalid("consumer group", nil, "is empty")
	}
	return QueueName(topic, consumerGroup)
}
