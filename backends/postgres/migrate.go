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
	// FunctionsTooNew: the tables fit, but the functions are of a later version of
	// the package, and do not serve this one any more.
	FunctionsTooNew bool
}

func (e *SchemaError) Error() string {
	switch {
	case e.Have == 0:
		return fmt.Sprintf("postgres: schema %q has no rota tables: run rota migrate, or open with MigrateAuto", e.Schema)
	case e.Have > e.Want:
		return fmt.Sprintf("postgres: schema %q has version %d and this program knows %d: update the program", e.Schema, e.Have, e.Want)
	}
	switch {
	case e.FunctionsTooNew:
		return fmt.Sprintf("postgres: schema %q has the functions of a later version of rota, which do not serve this program any more: update the program", e.Schema)
	case e.Have == e.Want:
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
// nothing. Functions of a later version of the package that still serve this one
// are left as they are. A schema that is newer than this package can work with is
// a *SchemaError.
func Migrate(ctx context.Context, db Beginner, schema string, version int) error {
	opts := Options{Schema: schema}.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	if version < 0 || version > schemaVersion {
		return core.Invalid("schema version", version, fmt.Sprintf("is not between 0 and %d", schemaVersion))
	}
	_, err := migrate(ctx, db, opts.Schema, version)
	return err
}

// migrateTries is how often a migration is begun: it locks all tables, in the server's order,
// and may deadlock with the calls of programs that are under way.
const migrateTries = 10

// migrate gives what was found, and was there before.
func migrate(ctx context.Context, db Beginner, schema string, version int) (found, error) {
	for try := 1; ; try++ {
		was, err := migrateOnce(ctx, db, schema, version)
		if !errors.Is(err, ErrTxConflict) || try == migrateTries || ctx.Err() != nil {
			return was, err
		}
	}
}

func migrateOnce(ctx context.Context, db Beginner, schema string, version int) (found, error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return found{}, storeError(ctx, "migrate", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	was, err := migrateTx(ctx, tx, schema, version)
	if err != nil {
		return was, err
	}
	return was, storeError(ctx, "migrate", tx.Commit(ctx))
}

func migrateTx(ctx context.Context, tx pgx.Tx, schema string, version int) (found, error) {
	// What others have committed until the lock is had must be seen.
	if _, err := tx.Exec(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return found{}, storeError(ctx, "migrate", err)
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1919906913, hashtext('migrate '||$1::text))", schema); err != nil {
		return found{}, storeError(ctx, "migrate", err)
	}
	was, err := look(ctx, tx, schema)
	if err != nil {
		return was, err
	}
	switch was.fits() {
	case tooNew:
		// Newer functions go with their schema, newer tables may hold what this
		// version knows nothing of.
		if version > 0 || was.version > schemaVersion {
			return was, was.schemaError(schema)
		}
	case current, usable:
		if version == schemaVersion {
			return was, nil
		}
	}
	if version == 0 && was.version == 0 {
		return was, nil
	}
	if version > 0 {
		var number int
		var encoding string
		if err := tx.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('server_encoding')").Scan(&number, &encoding); err != nil {
			return was, storeError(ctx, "migrate", err)
		}
		if err := serverFits(number, encoding, neededIsolation); err != nil {
			return was, err
		}
	}
	if was.version == 0 {
		if err := isOthers(ctx, tx, schema); err != nil {
			return was, err
		}
	}
	// One batch of statements without parameters, by the simple protocol.
	if _, err := tx.Conn().PgConn().Exec(ctx, migrationSQL(schema, was.version, version)).ReadAll(); err != nil {
		return was, storeError(ctx, "migrate", err)
	}
	return was, nil
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
		// CREATE SCHEMA asks for a right on the database even when the schema is there.
		fmt.Fprintf(&b, "DO $$ BEGIN\n\tIF NOT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '%[1]s') THEN CREATE SCHEMA \"%[1]s\"; END IF;\nEND $$;\n", schema)
	}
	for v := from; v < to; v++ {
		add(migrations[v].up)
	}
	add("undefine.sql")
	b.WriteString(functionsSQL(schema))
	// They act with the rights of whoever calls them, who needs USAGE on the schema to do that.
	fmt.Fprintf(&b, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %q TO PUBLIC;\n", schema)
	fmt.Fprintf(&b, "INSERT INTO %q.meta (version, functions) VALUES (%d, '%s')\n\tON CONFLICT (one) DO UPDATE SET version = excluded.version, functions = excluded.functions;\n",
		schema, to, ownFunctions())
	return b.String()
}

// CheckSchema answers a *SchemaError unless this version of the package can work
// with the schema (empty: DefaultSchema) as it is. It changes nothing.
func CheckSchema(ctx context.Context, db Querier, schema string) error {
	opts := Options{Schema: schema}.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	is, err := look(ctx, db, opts.Schema)
	if err != nil {
		return err
	}
	return is.schemaError(opts.Schema)
}
