package rotaredis

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// Options of a Backend. The zero value is usable.
type Options struct {
	// Prefix starts the names of all keys and channels, so that several
	// installations can share a server. Empty means "rota". It must not contain
	// braces, which are Redis Cluster's.
	Prefix string
	// Limits on the size of payloads and results.
	Limits core.Limits
	// Logger gets what an operator should know and no call can answer, such as an
	// eviction policy that loses jobs. Nil means slog.Default().
	Logger *slog.Logger
	// WaitReplicas makes every publish and settle wait until that many replicas
	// have the write (the command WAIT). When they have not within WaitTimeout,
	// the call answers ErrUnavailable; the write itself is done. Zero: no waiting.
	WaitReplicas int
	// WaitTimeout bounds that wait; zero means one second. It must be shorter than
	// the client's read timeout (three seconds unless set).
	WaitTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = "rota"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.WaitTimeout == 0 {
		o.WaitTimeout = time.Second
	}
	return o
}

func (o Options) validate() error {
	switch {
	case strings.ContainsAny(o.Prefix, "{}"):
		return core.Invalid("prefix", o.Prefix, "contains a brace")
	case len(o.Prefix) > 64:
		return core.Invalid("prefix", o.Prefix, "is longer than 64 bytes")
	case o.WaitReplicas < 0:
		return core.Invalid("number of replicas to wait for", o.WaitReplicas, "is negative")
	case o.WaitTimeout < time.Millisecond:
		return core.Invalid("wait timeout", o.WaitTimeout, fmt.Sprintf("is shorter than %s", time.Millisecond))
	}
	return o.Limits.Validate()
}
