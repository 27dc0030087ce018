package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/backends/postgres"
	"github.com/rota-queue/rota/core"
)

// exitNotCurrent is what -check exits with for a schema that no program of this
// version can work with as it is.
const exitNotCurrent = 3

var migrateCommand = command{
	name:    "migrate",
	summary: "install, upgrade, check or remove the PostgreSQL schema",
	help: `Without -print and -check it brings the schema to the version -to, in one
transaction: all of it is done or nothing is. Doing it again changes nothing, and
any number of processes may do it at once.

The server is the one of -url, else of DATABASE_URL, else of the variables PGHOST,
PGPORT, PGUSER, PGPASSWORD, PGDATABASE and so on. Other users of a machine can see
a command line, so a password is better there or in ~/.pgpass.

Exit codes: 0 done, or -check found that the schema is current; 1 it could not be
done; 2 the command line is wrong; 3 -check found that the schema is not current.

  rota migrate -url postgres://user@host/db
  rota migrate -print | psql --single-transaction -v ON_ERROR_STOP=1
  rota migrate -check && start-the-workers
  rota migrate -to 0 -drop-all-data
`,
	flags: migrateFlags,
}

// migration is what the flags of rota migrate say.
type migration struct {
	url, schema string
	to, from    int
	print       bool
	check       bool
	drop        bool
	wait        time.Duration
}

func migrateFlags(fs *flag.FlagSet) func(context.Context, output) error {
	var m migration
	fs.StringVar(&m.url, "url", "", "the server and database, as a postgres:// `URL` or \"host=... dbname=...\"")
	fs.StringVar(&m.schema, "schema", rotapostgres.DefaultSchema, "the `name` of the schema")
	fs.IntVar(&m.to, "to", rotapostgres.SchemaVersion, "the `version` to bring the schema to; 0 removes it with all jobs in it")
	fs.BoolVar(&m.print, "print", false, "write the SQL to standard output and do nothing; needs no server")
	fs.IntVar(&m.from, "from", 0, "with -print, the `version` that the schema has now (with -to 0, the newest unless you say)")
	fs.BoolVar(&m.check, "check", false, "change nothing; the exit code says whether the schema is current")
	fs.BoolVar(&m.drop, "drop-all-data", false, "allow -to 0")
	fs.DurationVar(&m.wait, "wait", 0, "how `long` to wait for a server that can not be reached yet, such as 30s")
	return func(ctx context.Context, out output) error {
		given := map[string]bool{}
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if err := m.validate(given); err != nil {
			return err
		}
		if m.print {
			return m.writeSQL(out)
		}
		return m.connected(ctx, out)
	}
}

// validate refuses flags that contradict each other: whoever gives them means
// something that would not happen.
func (m *migration) validate(given map[string]bool) error {
	switch {
	case m.print && m.check:
		return usage("-print and -check can not be used together")
	case given["from"] && !m.print:
		return usage("-from is for -print: a server knows its version")
	case m.check && given["to"]:
		return usage("-check is for the newest version, so -to has no place beside it")
	case m.drop && m.to != 0:
		return usage("-drop-all-data is for -to 0")
	case m.to == 0 && !m.print && !m.drop:
		return usage("-to 0 removes the schema %q with all jobs in it: add -drop-all-data if that is what you want", m.schema)
	case m.wait < 0:
		return usage("-wait is negative")
	}
	if m.to == 0 && !given["from"] {
		m.from = rotapostgres.SchemaVersion
	}
	// The package knows which names and versions there are.
	_, err := rotapostgres.MigrationSQL(m.schema, m.from, m.to)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

func (m *migration) writeSQL(out output) error {
	text, err := rotapostgres.MigrationSQL(m.schema, m.from, m.to)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out.stdout, "-- rota: schema %q from version %d to %d. Run it in one transaction:\n-- psql --single-transaction -v ON_ERROR_STOP=1\n%s", m.schema, m.from, m.to, text)
	return err
}

// connected does what needs a server, and waits for it as long as -wait says.
func (m *migration) connected(ctx context.Context, out output) error {
	pool, err := m.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	for deadline, pause := time.Now().Add(m.wait), 20*time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := m.act(ctx, pool, out)
		if !errors.Is(err, core.ErrUnavailable) || time.Now().Add(pause).After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (m *migration) act(ctx context.Context, pool *pgxpool.Pool, out output) error {
	if m.check {
		err := rotapostgres.CheckSchema(ctx, pool, m.schema)
		if is := (*rotapostgres.SchemaError)(nil); errors.As(err, &is) {
			return &exitError{exitNotCurrent, err}
		}
		if err != nil {
			return err
		}
		return m.say(out, "is current: version %d", rotapostgres.SchemaVersion)
	}
	if err := rotapostgres.Migrate(ctx, pool, m.schema, m.to); err != nil {
		return err
	}
	if m.to == 0 {
		return m.say(out, "is removed")
	}
	return m.say(out, "has version %d", m.to)
}

func (m *migration) say(out output, format string, args ...any) error {
	_, err := fmt.Fprintf(out.stdout, "schema %q "+format+"\n", append([]any{m.schema}, args...)...)
	return err
}

// pool is of one connection, which is made when it is needed.
func (m *migration) pool(ctx context.Context) (*pgxpool.Pool, error) {
	url := m.url
	if url == "" {
		url = os.Getenv("DATABASE_URL") // empty: pgx reads PGHOST and its like
	}
	config, err := pgxpool.ParseConfig(url) // a pool's, as programs have such URLs
	if err != nil {
		return nil, usage("the URL is not one pgxpool understands: %w", err)
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "rota migrate"
	}
	return pgxpool.NewWithConfig(ctx, config)
}
