package memory

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/tidwall/btree"

	"github.com/rota-queue/rota/core"
)

// space is a set of records and a set of counters.
type space struct {
	records  btree.Map[string, core.Record]
	counters map[string]counter
}

type counter struct {
	value   int64
	expires int64 // 0: never
}

// inSpace starts an operation on a space, which it makes if need be.
func (b *Backend) inSpace(ctx context.Context, name string) (s *space, now int64, unlock func(), err error) {
	now, unlock, err = b.begin(ctx)
	if err != nil {
		return nil, 0, nil, err
	}
	if b.spaces[name] == nil {
		b.spaces[name] = &space{counters: map[string]counter{}}
	}
	return b.spaces[name], now, unlock, nil
}

// live finds a record that has not expired, and forgets it when it has.
func (s *space) live(key string, now int64) (core.Record, bool) {
	r, ok := s.records.Get(key)
	if ok && !r.Expires.IsZero() && r.Expires.UnixMicro() <= now {
		s.records.Delete(key)
		return core.Record{}, false
	}
	return r, ok
}

func copyRecord(r core.Record) core.Record {
	r.Value = bytes.Clone(r.Value)
	return r
}

// PutRecord writes a record.
func (b *Backend) PutRecord(ctx context.Context, put core.PutRecord) (core.Record, error) {
	if err := put.Validate(b.limits); err != nil {
		return core.Record{}, err
	}
	s, now, unlock, err := b.inSpace(ctx, put.Space)
	if err != nil {
		return core.Record{}, err
	}
	defer unlock()
	old, exists := s.live(put.Key, now)
	if put.When == core.IfAbsent && exists || put.When == core.IfVersion && (!exists || old.Version != put.Version) {
		return core.Record{}, fmt.Errorf("record %q in space %q: %w", put.Key, put.Space, core.ErrConflict)
	}
	r := core.Record{Space: put.Space, Key: put.Key, Value: bytes.Clone(put.Value), Version: max(old.Version+1, now)}
	if put.TTL > 0 {
		r.Expires = timeOf(now + put.TTL.Microseconds())
	}
	s.records.Set(put.Key, r)
	return copyRecord(r), nil
}

// GetRecord reads a record.
func (b *Backend) GetRecord(ctx context.Context, space, key string) (core.Record, error) {
	if err := core.CheckRecordName(space, key); err != nil {
		return core.Record{}, err
	}
	s, now, unlock, err := b.inSpace(ctx, space)
	if err != nil {
		return core.Record{}, err
	}
	defer unlock()
	r, ok := s.live(key, now)
	if !ok {
		return core.Record{}, notFound("record", key)
	}
	return copyRecord(r), nil
}

// DeleteRecord deletes a record.
func (b *Backend) DeleteRecord(ctx context.Context, space, key string, version int64) error {
	if err := core.CheckRecordName(space, key); err != nil {
		return err
	}
	s, now, unlock, err := b.inSpace(ctx, space)
	if err != nil {
		return err
	}
	defer unlock()
	r, ok := s.live(key, now)
	switch {
	case !ok:
		return notFound("record", key)
	case version != 0 && version != r.Version:
		return fmt.Errorf("record %q in space %q: %w", key, space, core.ErrConflict)
	}
	s.records.Delete(key)
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
	s, now, unlock, err := b.inSpace(ctx, f.Space)
	if err != nil {
		return core.RecordPage{}, err
	}
	defer unlock()
	var page core.RecordPage
	var expired []string
	s.records.Ascend(f.Cursor, func(key string, r core.Record) bool {
		switch {
		case key == f.Cursor:
		case !r.Expires.IsZero() && r.Expires.UnixMicro() <= now:
			expired = append(expired, key)
		case len(page.Records) == limit:
			page.Next = page.Records[limit-1].Key
			return false
		default:
			page.Records = append(page.Records, copyRecord(r))
		}
		return true
	})
	for _, key := range expired {
		s.records.Delete(key)
	}
	return page, nil
}

// Increment adds to a counter.
func (b *Backend) Increment(ctx context.Context, space, key string, delta int64, ttl time.Duration) (int64, error) {
	if err := (core.PutRecord{Space: space, Key: key, TTL: ttl}).Validate(b.limits); err != nil {
		return 0, err
	}
	s, now, unlock, err := b.inSpace(ctx, space)
	if err != nil {
		return 0, err
	}
	defer unlock()
	c := s.counters[key]
	if c.expires != 0 && c.expires <= now {
		c = counter{}
	}
	if sum := c.value + delta; (sum > c.value) != (delta > 0) && delta != 0 {
		return 0, core.Invalid("delta", delta, fmt.Sprintf("makes the counter of %d overflow", c.value))
	}
	c.value += delta
	if ttl > 0 {
		c.expires = now + ttl.Microseconds()
	}
	s.counters[key] = c
	return c.value, nil
}
