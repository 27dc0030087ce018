package rotapostgres

import (
	"log/slog"
	"regexp"

	"github.com/rota-queue/rota/core"
)

// DefaultSchema is where the tables are when [Options.Schema] does not say.
const DefaultSchema = "rota"

// Options of a Backend. The zero value is usable.
type Options struct {
	// Schema holds the tables and functions, and nothing else; empty means
	// DefaultSchema. It begins with a lower-case letter or "_", has only those and
	// digits, and at most 40 bytes. Several schemas in one database are as many
	// independent stores.
	Schema string
	// Limits on the size of payloads and results.
	Limits core.Limits
	// Logger gets what an operator should know and no call can answer. Nil means
	// slog.Default().
	Logger *slog.Logger
	// Migrate says what opening does about the schema.
	Migrate MigratePolicy
	// Notify says whether hints go through LISTEN and NOTIFY.
	Notify NotifyPolicy
	// ListenURL names the server for the one connection that listens, where the
	// pool's connections can not: behind PgBouncer in transaction mode. Empty
	// means the pool's own settings.
	ListenURL string
}

// MigratePolicy says what opening does about the schema.
type MigratePolicy uint8

const (
	// MigrateAuto installs the schema or brings it up to date. It is the default.
	MigrateAuto MigratePolicy = iota
	// MigrateCheck answers a [*SchemaError] unless the schema is as this version of
	// the package wants it.
	MigrateCheck
)

// NotifyPolicy says whether hints go through LISTEN and NOTIFY.
type NotifyPolicy uint8

const (
	// NotifyOn sends and receives hints. It is the default. They are sent from a
	// connection of their own after the publish or settle has committed, at most
	// one per queue every few milliseconds, and only while a worker is idle.
	NotifyOn NotifyPolicy = iota
	// NotifyOff neither sends nor listens: Wakes delivers only what this process
	// itself does, and workers find the rest by polling.
	NotifyOff
)

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func (o Options) withDefaults() Options {
	if o.Schema == "" {
		o.Schema = DefaultSchema
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o Options) validate() error {
	switch {
	case !schemaName.MatchString(o.Schema) || o.Schema[:min(3, len(o.Schema))] == "pg_":
		return core.Invalid("schema", o.Schema, "is not a lower-case letter or _, followed by up to 39 of those or digits (and not pg_...)")
	case o.Migrate > MigrateCheck:
		return core.Invalid("migrate policy", uint8(o.Migrate), "is unknown")
	case o.Notify > NotifyOff:
		return core.Invalid("notify policy", uint8(o.Notify), "is unknown")
	case o.Limits.MaxPayload < 0:
		return core.Invalid("limit of payloads", o.Limits.MaxPayload, "is negative")
	}
	return nil
}
