package rotaredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
)

func (b *Backend) inSpace(ctx context.Context, s *script, space string, args ...any) (any, error) {
	return b.run(ctx, call{script: s, keys: []string{b.spaceKey(space)}, args: args})
}

// PutRecord writes a record.
func (b *Backend) PutRecord(ctx context.Context, put core.PutRecord) (core.Record, error) {
	if err := put.Validate(b.opts.Limits); err != nil {
		return core.Record{}, err
	}
	reply, err := b.inSpace(ctx, scriptRecordPut, put.Space,
		put.Key, string(put.Value), micros(put.TTL), int(put.When), put.Version, nonce())
	if err != nil {
		return core.Record{}, err
	}
	v := list(reply)
	if len(v) != 2 {
		return core.Record{}, conflict(put.Space, put.Key)
	}
	return core.Record{
		Space: put.Space, Key: put.Key, Value: bytes.Clone(put.Value), Version: number(v[0]), Expires: timeOf(number(v[1])),
	}, nil
}

func conflict(space, key string) error {
	return fmt.Errorf("record %q in space %q: %w", key, space, core.ErrConflict)
}

// GetRecord reads a record.
func (b *Backend) GetRecord(ctx context.Context, space, key string) (core.Record, error) {
	if err := core.CheckRecordName(space, key); err != nil {
		return core.Record{}, err
	}
	reply, err := b.inSpace(ctx, scriptRecordGet, space, key)
	if err != nil {
		return core.Record{}, err
	}
	v := list(reply)
	if len(v) != 3 {
		return core.Record{}, notFound("record", key)
	}
	return decodeRecord(space, key, v)
}

func decodeRecord(space, key string, v []any) (core.Record, error) {
	var d digits
	r := core.Record{Space: space, Key: key, Version: d.int(text(v[0])), Expires: timeOf(d.int(text(v[1]))), Value: []byte(text(v[2]))}
	return r, d.err
}

// DeleteRecord deletes a record.
func (b *Backend) DeleteRecord(ctx context.Context, space, key string, version int64) error {
	if err := core.CheckRecordName(space, key); err != nil {
		return err
	}
	reply, err := b.inSpace(ctx, scriptRecordDelete, space, key, version)
	if err != nil {
		return err
	}
	switch number(reply) {
	case 0:
		return notFound("record", key)
	case -1:
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
	reply, err := b.inSpace(ctx, scriptRecords, f.Space, limit, f.Cursor)
	if err != nil {
		return core.RecordPage{}, err
	}
	v := list(reply)
	if len(v)%4 != 1 {
		return core.RecordPage{}, badReply("records", reply)
	}
	page := core.RecordPage{Next: text(v[0])}
	for i := 1; i < len(v); i += 4 {
		r, err := decodeRecord(f.Space, text(v[i]), v[i+1:i+4])
		if err != nil {
			return core.RecordPage{}, err
		}
		page.Records = append(page.Records, r)
	}
	return page, nil
}

// Increment adds to a counter. When the connection breaks before the answer is
// there, it is not known whether it was added; the call is not repeated.
func (b *Backend) Increment(ctx context.Context, space, key string, delta int64, ttl time.Duration) (int64, error) {
	if err := (core.PutRecord{Space: space, Key: key, TTL: ttl}).Validate(b.opts.Limits); err != nil {
		return 0, err
	}
	ms := (micros(ttl) + 999) / 1000
	reply, err := b.inSpace(ctx, scriptIncrement, space, key, delta, ms)
	var answered redis.Error
	if errors.As(err, &answered) && errorWord(err) == "ERR" {
		return 0, fmt.Errorf("%w: %w", core.Invalid("delta", delta, "makes the counter leave the 64 bits"), err)
	}
	if err != nil {
		return 0, err
	}
	var d digits
	n := d.int(text(reply))
	return n, d.err
}
