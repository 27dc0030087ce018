package rotapostgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// Bind makes queue receive a copy of each job published to topic.
func (b *Backend) Bind(ctx context.Context, topic, queue string) error {
	if err := core.CheckBinding(topic, queue); err != nil {
		return err
	}
	_, err := one[any](ctx, b, "bind", `SELECT rota.bind($1::text, $2::text)::text`, topic, queue)
	return err
}

// Unbind undoes Bind.
func (b *Backend) Unbind(ctx context.Context, topic, queue string) error {
	if err := core.CheckBinding(topic, queue); err != nil {
		return err
	}
	return b.do(ctx, "unbind", func(conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, b.sql(`DELETE FROM rota.binding b USING rota.queue q WHERE b.topic = $1::text AND b.queue = q.id AND q.name = $2::text`), topic, queue)
		return err
	})
}

// Bindings lists the queues bound to a topic.
func (b *Backend) Bindings(ctx context.Context, topic string) ([]core.Binding, error) {
	if err := core.CheckQueue(topic); err != nil {
		return nil, err
	}
	return collect(ctx, b, "list bindings", func(rows pgx.CollectableRow) (core.Binding, error) {
		v := core.Binding{Topic: topic}
		var at int64
		err := rows.Scan(&v.Queue, &at)
		v.CreatedAt = timeOf(at)
		return v, err
	}, `SELECT q.name, b.created_at FROM rota.binding b JOIN rota.queue q ON q.id = b.queue WHERE b.topic = $1::text ORDER BY q.name`, topic)
}

// collect runs a statement that changes nothing and reads all its rows.
func collect[T any](ctx context.Context, b *Backend, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var list []T
	err := b.read(ctx, what, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, b.sql(sql), args...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scan)
		return err
	})
	if len(list) == 0 {
		list = nil
	}
	return list, err
}
