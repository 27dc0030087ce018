package rotawatermill

import "errors"

// Errors of this package. It also returns those of package core, wrapped with
// the values at hand: core.ErrInvalid for a bad configuration, topic, consumer
// group, group key or delay (the concrete type is *core.InvalidError),
// core.ErrClosed after Close, core.ErrNoBinding under [NoBindingError], and
// whatever the backend answers. Test with [errors.Is].
var (
	// ErrNoKey: under [NoKeyError], a message had no group key.
	ErrNoKey = errors.New("message has no group key")
	// ErrNacked is what a dead letter says of an attempt that was nacked without
	// a reason; see [RecordErrors].
	ErrNacked = errors.New("nacked")
)
