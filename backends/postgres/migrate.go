package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// SchemaError says that the schema is not as this version of the package needs
// it. It matches core.ErrMisconfigured.
type SchemaError struct {
	Schema string
	Have   int // the version that is installed, 0 for none
	Want   int // the version this package works with
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("postgres: schema %q has no rota tables: run rota migrate, or open with MigrateAuto", e.Schema)
	case e.Have > e.Want:
		return fmt.Sprintf("postgres: schema %q has version %d and this program knows %d: update the program", e.Schema, e.Have, e.Want)
	}
	if e.Have == e.Want {
		return fmt.Sprintf("postgres: schema %q has the functions of another version of rota: run rota migrate, or open with MigrateAuto", e.Schema)
	}
	return fmt.Sprintf("postgres: schema %q has version %d and this program needs %d: run rota migrate, or open with MigrateAuto", e.Schema, e.Have, e.Want)
}

// Is makes errors.Is(err, core.ErrMisconfigured) true.
func (e *SchemaError) Is(target error) bool { return target == core.ErrMisconfigured }

// SchemaVersion is the version of the schema this package works with.
const SchemaVersion = schemaVersion

// Beginner begins transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migrate brings a schema (empty: DefaultSchema) to a version: SchemaVersion to
// install it or bring it up to date, 0 to remove it with all it holds. All of it
// is one transaction, many processes may do it at once, and doing it again changes
// nothing. A schema that is newer than this package is a *SchemaError.
func Migrate(ctx context.Context, db Beginner, schema string, version int) error {
	opts := Options{Schema: schema}.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	if version < 0 || version > schemaVersion {
		return core.Invalid("schema version", version, fmt.Sprintf("is not between 0 and %d", schemaVersion))
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return storeError(ctx, "migrate", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if err := migrateTx(ctx, tx, opts.Schema, version); err != nil {
		return err
	}
	return storeError(ctx, "migrate", tx.Commit(ctx))
}

func migrateTx(ctx context.Context, tx pgx.Tx, schema string, version int) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1919906913, hashtext('migrate '||$1::text))", schema); err != nil {
		return storeError(ctx, "migrate", err)
	}
	have, functions, err := installed(ctx, tx, schema)
	if err != nil {
		return err
	}
	if have > schemaVersion {
		return &SchemaError{Schema: schema, Have: have, Want: schemaVersion}
	}
	if have == version && (version == 0 || functions == functionsDigest()) {
		return nil
	}
	// One batch of statements without parameters, by the simple protocol.
	if _, err := tx.Conn().PgConn().Exec(ctx, migrationSQL(schema, have, version)).ReadAll(); err != nil {
		return storeError(ctx, "migrate", err)
	}
	return nil
}

// MigrationSQL is what Migrate would run to bring a schema (empty: DefaultSchema)
// from one version to another, for people who run it themselves, inside a
// transaction.
func MigrationSQL(schema string, from, to int) (string, error) {
	opts := Options{Schema: schema}.withDefaults()
	if err := opts.validate(); err != nil {
		return "", err
	}
	for _, v := range []int{from, to} {
		if v < 0 || v > schemaVersion {
			return "", core.Invalid("schema version", v, fmt.Sprintf("is not between 0 and %d", schemaVersion))
		}
	}
	return migrationSQL(opts.Schema, from, to), nil
}

func migrationSQL(schema string, from, to int) string {
	var b strings.Builder
	add := func(file string) {
		b.WriteString(strings.ReplaceAll(render(schema, source(file)), "@schema@", schema))
		b.WriteByte('\n')
	}
	for v := from; v > to; v-- {
		add(migrations[v-1].down)
	}
	if to == 0 {
		return b.String()
	}
	if from == 0 {
		fmt.Fprintf(&b, "CREATE SCHEMA IF NOT EXISTS %q;\n", schema)
	}
	for v := from; v < to; v++ {
		add(migrations[v].up)
	}
	add("undefine.sql")
	b.WriteString(functionsSQL(schema))
	fmt.Fprintf(&b, "INSERT INTO %q.meta (version, functions) VALUES (%d, '%s')\n\tON CONFLICT (one) DO UPDATE SET version = excluded.version, functions = excluded.functions;\n",
		schema, to, functionsDigest())
	return b.String()
}

// querier is what both a pool and a transaction can do.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// installed tells which version is there, 0 for none, and the digest of its
// functions.
func installed(ctx context.Context, db querier, schema string) (version int, functions string, err error) {
	var there bool
	// Not to_regclass: it may answer from a cache that is older than the lock.
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1::text AND c.relname = 'meta')`, schema).Scan(&there); err != nil {
		return 0, "", storeError(ctx, "read the schema's version", err)
	}
	if !there {
		return 0, "", nil
	}
	err = db.QueryRow(ctx, fmt.Sprintf("SELECT version, functions FROM %q.meta", schema)).Scan(&version, &functions)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", nil
	}
	return version, functions, storeError(ctx, "read the schema's version", err)
}

// checkSchema is what opening does when it must not migrate.
func checkSchema(ctx context.Context, db querier, schema string) error {
	have, functions, err := installed(ctx, db, schema)
	if err != nil {
		return err
	}
	if have != schemaVersion || functions != functionsDigest() {
		return &SchemaError{Schema: schema, Have: have, Want: schemaVersion}
	}
	return nil
}
