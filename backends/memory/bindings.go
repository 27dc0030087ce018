package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/rota-queue/rota/core"
)

// Bind makes queue receive a copy of each job published to topic.
func (b *Backend) Bind(ctx context.Context, topic, queue string) error {
	if err := core.CheckBinding(topic, queue); err != nil {
		return err
	}
	now, unlock, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	b.ensureQueue(queue)
	if b.topics[topic] == nil {
		b.topics[topic] = map[string]int64{}
	}
	if _, bound := b.topics[topic][queue]; !bound {
		b.topics[topic][queue] = now
	}
	return nil
}

// Unbind undoes Bind.
func (b *Backend) Unbind(ctx context.Context, topic, queue string) error {
	if err := core.CheckBinding(topic, queue); err != nil {
		return err
	}
	_, unlock, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	delete(b.topics[topic], queue)
	return nil
}

// Bindings lists the queues bound to a topic.
func (b *Backend) Bindings(ctx context.Context, topic string) ([]core.Binding, error) {
	_, _, unlock, err := b.queueOp(ctx, topic)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var bindings []core.Binding
	for _, queue := range slices.Sorted(maps.Keys(b.topics[topic])) {
		bindings = append(bindings, core.Binding{Topic: topic, Queue: queue, CreatedAt: timeOf(b.topics[topic][queue])})
	}
	return bindings, nil
}
