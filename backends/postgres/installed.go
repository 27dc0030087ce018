package rotapostgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// Querier asks for one row: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// functionSet names one set of functions. Its text is what meta.functions holds.
type functionSet struct {
	revision int // of two releases the later one has the greater
	since    int // the oldest revision whose programs it serves
	digest   string
}

func (f functionSet) String() string {
	return fmt.Sprintf("r%d s%d %s", f.revision, f.since, f.digest)
}

// parseFunctionSet reads the text; one without a revision is older than all that
// have one.
func parseFunctionSet(text string) functionSet {
	var f functionSet
	if n, err := fmt.Sscanf(text, "r%d s%d %s", &f.revision, &f.since, &f.digest); n != 3 || err != nil {
		return functionSet{digest: text}
	}
	return f
}

// ownFunctions is what this version of the package defines.
func ownFunctions() functionSet {
	return functionSet{revision: functionsRevision, since: functionsSince, digest: functionsDigest()}
}

// found is what a schema has.
type found struct {
	version   int // of the tables; 0: there are none
	functions functionSet
}

// fit says what a schema is to this version of the package.
type fit int

const (
	current fit = iota
	usable      // functions of a later release, which serve this one too
	outdated
	tooNew
)

// fits decides. The functions of a later release stay, or two releases would
// replace each other's for ever while a program is updated process by process. Of
// two sets of one revision, which no two releases have, the last one stays.
func (f found) fits() fit {
	own := ownFunctions()
	switch {
	case f.version > schemaVersion:
		return tooNew
	case f.version < schemaVersion:
		return outdated
	case f.functions == own:
		return current
	case f.functions.revision <= own.revision:
		return outdated
	case f.functions.since <= own.revision:
		return usable
	}
	return tooNew
}

// schemaError is nil for a schema that this version can work with.
func (f found) schemaError(schema string) error {
	e := &SchemaError{Schema: schema, Have: f.version, Want: schemaVersion}
	switch f.fits() {
	case current, usable:
		return nil
	case tooNew:
		e.FunctionsTooNew = f.version == schemaVersion
	}
	return e
}

// look tells what is installed.
func look(ctx context.Context, db Querier, schema string) (found, error) {
	var there bool
	// Not to_regclass: it may answer from a cache that is older than the lock.
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'functions'
		WHERE n.nspname = $1::text AND c.relname = 'meta')`, schema).Scan(&there); err != nil {
		return found{}, storeError(ctx, "read the schema's version", err)
	}
	if !there {
		return found{}, nil
	}
	var f found
	var functions string
	err := db.QueryRow(ctx, fmt.Sprintf("SELECT version, functions FROM %q.meta", schema)).Scan(&f.version, &functions)
	if errors.Is(err, pgx.ErrNoRows) {
		return found{}, nil
	}
	f.functions = parseFunctionSet(functions)
	return f, storeError(ctx, "read the schema's version", err)
}

// isOthers answers an error when a schema that is to be installed has tables or functions of
// somebody else: rota removes all functions of its schema when it is brought up to date, and all it
// holds when it is removed.
func isOthers(ctx context.Context, db Querier, schema string) error {
	var others bool
	if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text)
		OR EXISTS (SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1::text)`, schema).Scan(&others); err != nil {
		return storeError(ctx, "look at the schema", err)
	}
	if others {
		return fmt.Errorf("postgres: migrate: schema %q: %w: it has tables or functions that are not rota's, nothing was done: give rota a schema of its own", schema, core.ErrMisconfigured)
	}
	return nil
}
