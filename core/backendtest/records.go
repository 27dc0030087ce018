package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
)

var recordTests = []test{
	{"PutGetDelete", testRecord},
	{"Versions", testRecordVersions},
	{"IfAbsent", testRecordIfAbsent},
	{"IfVersion", testRecordIfVersion},
	{"Expiry", testRecordExpiry},
	{"ExpiredIsAbsent", testRecordExpired},
	{"DeleteVersion", testRecordDelete},
	{"List", testRecordList},
	{"ListPages", testRecordPages},
	{"Spaces", testRecordSpaces},
	{"Binary", testRecordBinary},
	{"OneOfManyWriters", testRecordRace},
	{"Counters", testCounters},
	{"CountersAtOnce", testCountersAtOnce},
	{"CounterExpiry", testCounterExpiry},
	{"CountersAreNoRecords", testCountersNoRecords},
}

// putRecord writes a record, which must succeed. Records without an expiry are
// deleted in the end.
func (f *fixture) putRecord(space, key, value string, put core.PutRecord) core.Record {
	f.Helper()
	rec, err := f.tryPutRecord(space, key, value, put)
	f.check(err)
	equal(f, "space and key", []string{rec.Space, rec.Key}, []string{space, key})
	equal(f, "value", string(rec.Value), value)
	return rec
}

func (f *fixture) tryPutRecord(space, key, value string, put core.PutRecord) (core.Record, error) {
	f.Helper()
	put.Space, put.Key, put.Value = space, key, []byte(value)
	if put.TTL == 0 {
		f.Cleanup(func() { _ = f.b.DeleteRecord(context.WithoutCancel(f.ctx), space, key, 0) })
	}
	return f.b.PutRecord(f.ctx, put)
}

// wantRecord fails the test unless the record is there as it was written.
func (f *fixture) wantRecord(want core.Record) {
	f.Helper()
	got, err := f.b.GetRecord(f.ctx, want.Space, want.Key)
	f.check(err)
	equal(f, "record", plainRecord(got), plainRecord(want))
}

func (f *fixture) wantNoRecord(space, key string) {
	f.Helper()
	_, err := f.b.GetRecord(f.ctx, space, key)
	f.wantErr(err, core.ErrNotFound)
}

func plainRecord(r core.Record) string {
	expires := "never"
	if !r.Expires.IsZero() {
		expires = clock(r.Expires)
	}
	return fmt.Sprintf("%q %q = %q version %d expires %s", r.Space, r.Key, r.Value, r.Version, expires)
}

func testRecord(f *fixture) {
	space := uniqueName()
	f.wantNoRecord(space, "k")
	rec := f.putRecord(space, "k", "one", core.PutRecord{})
	equal(f, "expires", rec.Expires.IsZero(), true)
	f.wantRecord(rec)
	f.otherHandle().wantRecord(rec)
	rec = f.putRecord(space, "k", "two", core.PutRecord{})
	f.wantRecord(rec)
	f.check(f.b.DeleteRecord(f.ctx, space, "k", 0))
	f.wantNoRecord(space, "k")
	f.wantErr(f.b.DeleteRecord(f.ctx, space, "k", 0), core.ErrNotFound)
	f.wantErr(f.b.DeleteRecord(f.ctx, space, "k", 7), core.ErrNotFound)
}

// A version is not repeated while the key lives.
func testRecordVersions(f *fixture) {
	space := uniqueName()
	seen := map[int64]bool{}
	for i := range 20 {
		rec := f.putRecord(space, "k", fmt.Sprint(i%2), core.PutRecord{})
		if rec.Version == 0 || seen[rec.Version] {
			f.Fatalf("version %d of write %d was used or is zero", rec.Version, i)
		}
		seen[rec.Version] = true
	}
}

func testRecordIfAbsent(f *fixture) {
	space := uniqueName()
	first := f.putRecord(space, "k", "one", core.PutRecord{When: core.IfAbsent})
	_, err := f.tryPutRecord(space, "k", "two", core.PutRecord{When: core.IfAbsent})
	f.wantErr(err, core.ErrConflict)
	f.wantRecord(first)
	f.check(f.b.DeleteRecord(f.ctx, space, "k", 0))
	f.putRecord(space, "k", "three", core.PutRecord{When: core.IfAbsent})
}

func testRecordIfVersion(f *fixture) {
	space := uniqueName()
	put := func(version int64) (core.Record, error) {
		return f.tryPutRecord(space, "k", "new", core.PutRecord{When: core.IfVersion, Version: version})
	}
	_, err := put(0)
	f.wantErr(err, core.ErrConflict)
	_, err = put(1)
	f.wantErr(err, core.ErrConflict)
	f.wantNoRecord(space, "k")
	first := f.putRecord(space, "k", "one", core.PutRecord{})
	_, err = put(first.Version + 1)
	f.wantErr(err, core.ErrConflict)
	f.wantRecord(first)
	second, err := put(first.Version)
	f.check(err)
	f.wantRecord(second)
	_, err = put(first.Version)
	f.wantErr(err, core.ErrConflict)
	_, err = put(second.Version)
	f.check(err)
}

func testRecordExpiry(f *fixture) {
	space := uniqueName()
	from := f.now()
	rec := f.putRecord(space, "k", "v", core.PutRecord{TTL: hour})
	f.within("expiry", rec.Expires, from.Add(hour), f.now().Add(hour))
	f.wantRecord(rec)
	rec = f.putRecord(space, "k", "v", core.PutRecord{TTL: brief}) // each write sets it anew
	f.passes(rec.Expires)
	f.wantNoRecord(space, "k")
	rec = f.putRecord(space, "k", "v", core.PutRecord{TTL: brief})
	rec = f.putRecord(space, "k", "v", core.PutRecord{})
	equal(f, "expires", rec.Expires.IsZero(), true)
	f.passes(f.now().Add(brief))
	f.wantRecord(rec)
}

// An expired record is none: for reads, for lists, for conditions.
func testRecordExpired(f *fixture) {
	space := uniqueName()
	expired := func() core.Record {
		f.Helper()
		rec := f.putRecord(space, "k", "v", core.PutRecord{TTL: core.MinLease})
		f.passes(rec.Expires)
		return rec
	}
	old := expired()
	f.wantNoRecord(space, "k")
	equal(f, "records", len(f.records(space, 0)), 0)
	f.wantErr(f.b.DeleteRecord(f.ctx, space, "k", old.Version), core.ErrNotFound)
	_, err := f.tryPutRecord(space, "k", "v", core.PutRecord{When: core.IfVersion, Version: old.Version})
	f.wantErr(err, core.ErrConflict)
	f.putRecord(space, "k", "v", core.PutRecord{When: core.IfAbsent, TTL: hour})
	expired()
	f.putRecord(space, "k", "v", core.PutRecord{When: core.IfAbsent})
}

func testRecordDelete(f *fixture) {
	space := uniqueName()
	rec := f.putRecord(space, "k", "v", core.PutRecord{})
	f.wantErr(f.b.DeleteRecord(f.ctx, space, "k", rec.Version+1), core.ErrConflict)
	f.wantRecord(rec)
	f.check(f.b.DeleteRecord(f.ctx, space, "k", rec.Version))
	f.wantNoRecord(space, "k")
}

// records lists all records of a space in pages of a size.
func (f *fixture) records(space string, limit int) []core.Record {
	f.Helper()
	var all []core.Record
	filter := core.RecordFilter{Space: space, Limit: limit}
	for {
		page, err := f.b.Records(f.ctx, filter)
		f.check(err)
		if limit > 0 && len(page.Records) > limit {
			f.Fatalf("a page of %d records with a limit of %d", len(page.Records), limit)
		}
		all = append(all, page.Records...)
		if filter.Cursor = page.Next; page.Next == "" {
			return all
		}
	}
}

func testRecordList(f *fixture) {
	space := uniqueName()
	want := []string{"10", "9", "A", "Z", "a", "a:b", "b", "{k}", "é"}
	written := map[string]core.Record{}
	for i := range want {
		key := want[i*4%len(want)]
		written[key] = f.putRecord(space, key, "value of "+key, core.PutRecord{TTL: hour})
	}
	gone := f.putRecord(space, "B", "", core.PutRecord{TTL: core.MinLease})
	f.passes(gone.Expires)
	for _, limit := range []int{0, 1, 4, len(want)} {
		got := []string{}
		for _, rec := range f.records(space, limit) {
			got = append(got, rec.Key)
			equal(f, "record", plainRecord(rec), plainRecord(written[rec.Key]))
		}
		equal(f, "keys", got, want)
	}
	for _, key := range want {
		f.check(f.b.DeleteRecord(f.ctx, space, key, 0))
	}
	equal(f, "records", len(f.records(space, 0)), 0)
}

func testRecordPages(f *fixture) {
	space := uniqueName()
	keys := names("k", core.DefaultPage+20)
	for _, key := range keys {
		f.putRecord(space, key, "", core.PutRecord{TTL: hour})
	}
	page, err := f.b.Records(f.ctx, core.RecordFilter{Space: space})
	f.check(err)
	equal(f, "page by default", len(page.Records), core.DefaultPage)
	// What comes and goes between two pages does not disturb the walk.
	f.check(f.b.DeleteRecord(f.ctx, space, page.Records[core.DefaultPage-1].Key, 0))
	f.check(f.b.DeleteRecord(f.ctx, space, keys[core.DefaultPage+3], 0))
	page, err = f.b.Records(f.ctx, core.RecordFilter{Space: space, Cursor: page.Next})
	f.check(err)
	got := []string{}
	for _, rec := range page.Records {
		got = append(got, rec.Key)
	}
	equal(f, "second page", got, slices.Delete(slices.Clone(keys[core.DefaultPage:]), 3, 4))
	for _, rec := range f.records(space, 0) {
		f.check(f.b.DeleteRecord(f.ctx, space, rec.Key, 0))
	}
}

func testRecordSpaces(f *fixture) {
	a := uniqueName()
	b := a + ":x"
	f.putRecord(a, "x:k", "in a", core.PutRecord{TTL: hour})
	f.putRecord(b, "k", "in b", core.PutRecord{TTL: hour})
	equal(f, "records of a", len(f.records(a, 0)), 1)
	equal(f, "records of b", len(f.records(b, 0)), 1)
	f.check(f.b.DeleteRecord(f.ctx, a, "x:k", 0))
	f.wantNoRecord(a, "k")
	equal(f, "records of b", len(f.records(b, 0)), 1)
	f.check(f.b.DeleteRecord(f.ctx, b, "k", 0))
}

func testRecordBinary(f *fixture) {
	space := uniqueName()
	for i, value := range []string{"", "\x00", "\xff\xfe", "a\x00b", string(bytes.Repeat([]byte{0x80}, 100_000))} {
		rec := f.putRecord(space, fmt.Sprint("k", i), value, core.PutRecord{TTL: time.Minute})
		f.wantRecord(rec)
	}
}

// Of many writers with one condition, one writes.
func testRecordRace(f *fixture) {
	space := uniqueName()
	handles := []core.Backend{f.b, f.open()}
	race := func(put core.PutRecord) int64 {
		put.Space, put.Key, put.TTL = space, "k", hour
		var won atomic.Int64
		f.together(8, func(i int) error {
			rec, err := handles[i%2].PutRecord(f.ctx, put)
			if err == nil {
				won.Add(rec.Version)
			} else if !errors.Is(err, core.ErrConflict) {
				return err
			}
			return nil
		})
		return won.Load()
	}
	version := race(core.PutRecord{When: core.IfAbsent})
	for range 5 {
		rec, err := f.b.GetRecord(f.ctx, space, "k")
		f.check(err)
		equal(f, "the one version that was written", rec.Version, version)
		version = race(core.PutRecord{When: core.IfVersion, Version: version})
	}
	f.check(f.b.DeleteRecord(f.ctx, space, "k", 0))
}

func (f *fixture) count(space, key string, delta int64, ttl time.Duration) int64 {
	f.Helper()
	n, err := f.b.Increment(f.ctx, space, key, delta, ttl)
	f.check(err)
	return n
}

func testCounters(f *fixture) {
	space := uniqueName()
	for i, c := range []struct{ delta, want int64 }{{1, 1}, {1, 2}, {40, 42}, {-50, -8}, {0, -8}, {1 << 50, 1<<50 - 8}} {
		equal(f, fmt.Sprint("sum ", i), f.count(space, "k", c.delta, hour), c.want)
	}
	equal(f, "another counter", f.count(space, "k2", 5, hour), 5)
	equal(f, "in another space", f.count(uniqueName(), "k", 7, hour), 7)
	equal(f, "through another handle", f.otherHandle().count(space, "k2", 1, hour), 6)
}

func testCountersAtOnce(f *fixture) {
	space := uniqueName()
	handles := []core.Backend{f.b, f.open()}
	f.together(8, func(i int) error {
		for range 25 {
			if _, err := handles[i%2].Increment(f.ctx, space, "k", 1, hour); err != nil {
				return err
			}
		}
		return nil
	})
	equal(f, "sum", f.count(space, "k", 0, hour), 200)
}

// A time to live is renewed by each increment that brings one.
func testCounterExpiry(f *fixture) {
	space := uniqueName()
	f.count(space, "k", 5, brief)
	f.passes(f.now().Add(brief))
	equal(f, "sum after the expiry", f.count(space, "k", 1, brief), 1)
	f.count(space, "k", 1, hour)
	f.passes(f.now().Add(brief))
	equal(f, "sum of a renewed counter", f.count(space, "k", 1, 0), 3)
	equal(f, "sum", f.count(space, "k", 1, core.MinLease), 4)
	f.passes(f.now().Add(core.MinLease))
	equal(f, "sum after the expiry", f.count(space, "k", 1, core.MinLease), 1)
}

func testCountersNoRecords(f *fixture) {
	space := uniqueName()
	rec := f.putRecord(space, "k", "value", core.PutRecord{TTL: hour})
	equal(f, "counter beside a record", f.count(space, "k", 3, hour), 3)
	f.wantRecord(rec)
	f.count(space, "only a counter", 1, hour)
	f.wantNoRecord(space, "only a counter")
	equal(f, "records", len(f.records(space, 0)), 1)
	f.check(f.b.DeleteRecord(f.ctx, space, "k", 0))
	equal(f, "counter", f.count(space, "k", 1, core.MinLease), 4)
}
