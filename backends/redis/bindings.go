package rotaredis

import (
	"cmp"
	"context"
	"slices"

	"github.com/rota-queue/rota/core"
)

// Bind makes queue receive a copy of each job published to topic.
func (b *Backend) Bind(ctx context.Context, topic, queue string) error {
	if err := core.CheckBinding(topic, queue); err != nil {
		return err
	}
	reply, err := b.run(ctx, call{script: scriptBind, keys: []string{b.queueKey(queue), b.queueKey(topic)}, args: []any{queue}})
	if err != nil {
		return err
	}
	return b.announceIf(ctx, number(reply) == 1, queue)
}

// Unbind undoes Bind.
func (b *Backend) Unbind(ctx context.Context, topic, queue string) error {
	if err := core.CheckBinding(topic, queue); err != nil {
		return err
	}
	_, err := b.run(ctx, call{script: scriptUnbind, keys: []string{b.queueKey(queue), b.queueKey(topic)}, args: []any{queue}})
	return err
}

// Bindings lists the queues bound to a topic.
func (b *Backend) Bindings(ctx context.Context, topic string) ([]core.Binding, error) {
	reply, err := b.ask(ctx, scriptBindings, topic)
	if err != nil {
		return nil, err
	}
	v := list(reply)
	var bindings []core.Binding
	var d digits
	for i := 0; i+1 < len(v); i += 2 {
		bindings = append(bindings, core.Binding{Topic: topic, Queue: text(v[i]), CreatedAt: timeOf(d.int(text(v[i+1])))})
	}
	slices.SortFunc(bindings, func(x, y core.Binding) int { return cmp.Compare(x.Queue, y.Queue) })
	return bindings, d.err
}
