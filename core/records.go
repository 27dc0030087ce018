package core

import "time"

// Record is a small value with an expiry that belongs to no job: an entry of a
// running server or scheduler, a leader's lease, a setting of an adapter.
type Record struct {
	Space   string // a set of records that are listed together
	Key     string // unique in its space
	Value   []byte
	Version int64     // changes with every write, never repeats for a key that lives
	Expires time.Time // store clock; zero: never
}

// PutRecord writes a record.
type PutRecord struct {
	Space, Key string
	Value      []byte
	// TTL from now on the store's clock; zero: no expiry.
	TTL time.Duration
	// When says under which condition it is written; else ErrConflict.
	When PutCondition
	// Version is the expected version for IfVersion.
	Version int64
}

// PutCondition is the condition of a [PutRecord].
type PutCondition uint8

const (
	// Always writes. It is the default.
	Always PutCondition = iota
	// IfAbsent writes when no unexpired record has the key.
	IfAbsent
	// IfVersion writes when the record has the given version and has not expired.
	IfVersion
)

// RecordFilter lists records of a space in the order of their keys.
type RecordFilter struct {
	Space  string
	Limit  int    // 1 to MaxPage; 0 means DefaultPage
	Cursor string // from RecordPage.Next
}

// RecordPage is one page; an empty Next ends the listing. Expired records are
// never listed.
type RecordPage struct {
	Records []Record
	Next    string
}
