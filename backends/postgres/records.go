package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// PutRecord writes a record.
func (b *Backend) PutRecord(ctx context.Context, put core.PutRecord) (core.Record, error) {
	if err := put.Validate(b.opts.Limits); err != nil {
		return core.Record{}, err
	}
	value := put.Value
	if value == nil {
		value = []byte{}
	}
	r := core.Record{Space: put.Space, Key: put.Key, Value: put.Value}
	var expires *int64
	err := b.do(ctx, "put a record", func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(`SELECT * FROM rota.put_record($1::text, $2::text, $3::bytea, $4::int8, $5::int4, $6::int8)`),
			put.Space, put.Key, value, put.TTL.Microseconds(), int32(put.When), put.Version).Scan(&r.Version, &expires)
	})
	if err != nil {
		return core.Record{}, err
	}
	if r.Version == 0 {
		return core.Record{}, conflict(put.Space, put.Key)
	}
	r.Expires = timeOf(num(expires))
	r.Value = append([]byte(nil), put.Value...)
	return r, nil
}

func conflict(space, key string) error {
	return fmt.Errorf("record %q in space %q: %w", key, space, core.ErrConflict)
}

// GetRecord reads a record.
func (b *Backend) GetRecord(ctx context.Context, space, key string) (core.Record, error) {
	if err := core.CheckRecordName(space, key); err != nil {
		return core.Record{}, err
	}
	r := core.Record{Space: space, Key: key}
	var expires *int64
	err := b.read(ctx, "get a record", func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(`SELECT r.value, r.version, r.expires FROM rota.record r
			WHERE r.space = $1::text AND r.key = $2::text AND (r.expires IS NULL OR r.expires > rota.us())`), space, key).Scan(&r.Value, &r.Version, &expires)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return core.Record{}, notFound("record", key)
	}
	if err != nil {
		return core.Record{}, err
	}
	r.Value, r.Expires = orNil(r.Value), timeOf(num(expires))
	return r, nil
}

// orNil gives an empty value as nil, as a caller gave it.
func orNil(v []byte) []byte {
	if len(v) == 0 {
		return nil
	}
	return v
}

// DeleteRecord deletes a record.
func (b *Backend) DeleteRecord(ctx context.Context, space, key string, version int64) error {
	if err := core.CheckRecordName(space, key); err != nil {
		return err
	}
	verdict, err := one[int](ctx, b, "delete a record", `SELECT rota.delete_record($1::text, $2::text, $3::int8)`, space, key, version)
	switch {
	case err != nil:
		return err
	case verdict == 1:
		return notFound("record", key)
	case verdict == 2:
		return conflict(space, key)
	}
	return nil
}

// Records lists records.
func (b *Backend) Records(ctx context.Context, f core.RecordFilter) (core.RecordPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.RecordPage{}, err
	}
	if err := core.CheckRecordName(f.Space, "-"); err != nil {
		return core.RecordPage{}, err
	}
	if !storable(f.Cursor) {
		return core.RecordPage{}, core.Invalid("cursor", f.Cursor, "is not one this listing gave")
	}
	list, err := collect(ctx, b, "list records", func(row pgx.CollectableRow) (core.Record, error) {
		r := core.Record{Space: f.Space}
		var expires *int64
		err := row.Scan(&r.Key, &r.Value, &r.Version, &expires)
		r.Value, r.Expires = orNil(r.Value), timeOf(num(expires))
		return r, err
	}, `SELECT r.key, r.value, r.version, r.expires FROM rota.record r WHERE r.space = $1::text AND r.key > $2::text COLLATE "C"
		AND (r.expires IS NULL OR r.expires > rota.us()) ORDER BY r.key LIMIT $3::int4`, f.Space, f.Cursor, limit+1)
	if err != nil {
		return core.RecordPage{}, err
	}
	page := core.RecordPage{Records: list}
	if len(list) > limit {
		page.Records = list[:limit]
		page.Next = list[limit-1].Key
	}
	return page, nil
}

// Increment adds to a counter.
func (b *Backend) Increment(ctx context.Context, space, key string, delta int64, ttl time.Duration) (int64, error) {
	if err := (core.PutRecord{Space: space, Key: key, TTL: ttl}).Validate(b.opts.Limits); err != nil {
		return 0, err
	}
	return one[int64](ctx, b, "increment", `SELECT rota.increment($1::text, $2::text, $3::int8, $4::int8)`, space, key, delta, ttl.Microseconds())
}
