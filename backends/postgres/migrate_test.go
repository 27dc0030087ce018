package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// wantWorks publishes, claims and settles a job.
func wantWorks(t testing.TB, b *Backend) {
	t.Helper()
	q := newQueue(t, b)
	q.publish("g", "a")
	q.complete(q.wantClaim("a"))
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	conn := connect(t, url)
	for range 2 {
		check(t, Migrate(t.Context(), conn, "", SchemaVersion))
	}
	wantWorks(t, open(t, url, Options{Migrate: MigrateCheck}))
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	const n = 8
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			b, err := Open(t.Context(), url+"&pool_max_conns=1", Options{})
			if err == nil {
				err = b.Close()
			}
			errs[i] = err
		})
	}
	wg.Wait()
	check(t, errors.Join(errs...))
	wantWorks(t, open(t, url, Options{Migrate: MigrateCheck}))
}

func TestMigrateDown(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url, Options{})
	wantWorks(t, b)
	conn := connect(t, url)
	for range 2 {
		check(t, Migrate(t.Context(), conn, "", 0))
		var n int
		check(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname = 'rota'").Scan(&n))
		equal(t, "schemas left", n, 0)
	}
	_, err := b.Claim(t.Context(), core.ClaimRequest{Queue: "q", Max: 1, Lease: hour})
	wantError(t, err, core.ErrMisconfigured, "rota migrate")
	check(t, Migrate(t.Context(), conn, "", SchemaVersion))
	wantWorks(t, open(t, url, Options{Migrate: MigrateCheck}))
}

func TestMigrateCheck(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	_, err := Open(t.Context(), url, Options{Migrate: MigrateCheck})
	wantError(t, err, core.ErrMisconfigured, "has no rota tables: run rota migrate")

	conn := connect(t, url)
	check(t, Migrate(t.Context(), conn, "", SchemaVersion))
	_, err = conn.Exec(t.Context(), "UPDATE rota.meta SET version = version + 1")
	check(t, err)
	for _, policy := range []MigratePolicy{MigrateAuto, MigrateCheck} {
		_, err = Open(t.Context(), url, Options{Migrate: policy})
		wantError(t, err, core.ErrMisconfigured, "update the program")
		var se *SchemaError
		if !errors.As(err, &se) || se.Have != SchemaVersion+1 || se.Want != SchemaVersion {
			t.Fatalf("got %#v, want a *SchemaError with the versions", err)
		}
	}
	wantError(t, Migrate(t.Context(), conn, "", 0), core.ErrMisconfigured, "update the program")
	wantError(t, Migrate(t.Context(), conn, "", SchemaVersion+1), core.ErrInvalid, "schema version")
}

// Functions of another version of the package are replaced; nothing else changes.
func TestMigrateFunctions(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	b := open(t, url, Options{})
	q := newQueue(t, b)
	q.publish("g", "a")
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "UPDATE rota.meta SET functions = 'old'; DROP FUNCTION rota.purge; CREATE FUNCTION rota.old() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
	check(t, err)
	_, err = Open(t.Context(), url, Options{Migrate: MigrateCheck})
	wantError(t, err, core.ErrMisconfigured, "functions")
	open(t, url, Options{})
	var n int
	check(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_proc WHERE proname = 'old' AND pronamespace = 'rota'::regnamespace").Scan(&n))
	equal(t, "functions of the other version", n, 0)
	q.complete(q.wantClaim("a"))
	_, err = b.Purge(t.Context(), q.name, 10)
	check(t, err)
}

// Schemas in one database know nothing of each other.
func TestMigrateSchemas(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	one, other := open(t, url, Options{Schema: "_jobs_1"}), open(t, url, Options{Schema: "rota2"})
	for _, b := range []*Backend{one, other} {
		q := queue{t, b, "q"}
		q.publish("g", "a")
	}
	q := queue{t, one, "q"}
	q.complete(q.wantClaim("a"))
	q.wantNothing()
	equal(t, "state in the other schema", (queue{t, other, "q"}).state("a"), core.StatePending)
	check(t, Migrate(t.Context(), connect(t, url), "_jobs_1", 0))
	q = queue{t, other, "q"}
	q.complete(q.wantClaim("a"))
	for _, name := range []string{"Rota", "pg_rota", "a-b", `x"y`, strings.Repeat("x", 41), "1a"} {
		_, err := Open(t.Context(), url, Options{Schema: name})
		wantError(t, err, core.ErrInvalid, "schema")
	}
}

// A schema that has something of somebody else is left as it is.
func TestMigrateForeignSchema(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	conn := connect(t, url)
	for i, sql := range []string{
		"CREATE FUNCTION S.stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
		"CREATE AGGREGATE S.plus (int) (sfunc = int4pl, stype = int)",
		"CREATE TABLE S.job (id int)",
		"CREATE TABLE S.meta (version int)",
		"CREATE VIEW S.v AS SELECT 1",
	} {
		schema := fmt.Sprint("app", i)
		_, err := conn.Exec(t.Context(), "CREATE SCHEMA "+schema)
		check(t, err)
		_, err = conn.Exec(t.Context(), strings.ReplaceAll(sql, "S.", schema+"."))
		check(t, err)
		_, err = Open(t.Context(), url, Options{Schema: schema})
		wantError(t, err, core.ErrMisconfigured, fmt.Sprintf("%q", schema))
		check(t, Migrate(t.Context(), conn, schema, 0)) // does nothing
		var left int
		check(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_proc WHERE pronamespace = $1::regnamespace)
			+ (SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace)`, schema).Scan(&left))
		equal(t, "things of "+schema, left, 1)
	}
	_, err := conn.Exec(t.Context(), "CREATE SCHEMA prepared")
	check(t, err)
	open(t, url, Options{Schema: "prepared"})
}

// A migration that deadlocks with a call under way is begun again.
func TestMigrateDeadlock(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	open(t, url, Options{})
	tables := []string{"meta", "queue", "job", "lane", "seat", "arrival", "dedup", "tally", "event", "binding", "record", "counter"}
	conn, other := connect(t, url), connect(t, url)
	tx, err := conn.Begin(t.Context())
	check(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '1h'; LOCK TABLE rota.arrival IN ACCESS SHARE MODE") // the other one is the victim
	check(t, err)
	migrated := make(chan error, 1)
	go func() { migrated <- Migrate(t.Context(), connect(t, url), "", 0) }()
	waits := func(pid uint32) bool {
		var yes bool
		check(t, other.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE $1::int = ANY (pg_blocking_pids(pid))", pid).Scan(&yes))
		return yes
	}
	eventually(t, "the migration waits", func() bool { return waits(conn.PgConn().PID()) })
	_, err = tx.Exec(t.Context(), "LOCK TABLE rota."+strings.Join(tables, ", rota.")+" IN ACCESS SHARE MODE")
	check(t, err)
	var deadlocks int
	eventually(t, "the server tells of the deadlock", func() bool {
		check(t, other.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks))
		return deadlocks > 0
	})
	check(t, tx.Commit(t.Context()))
	check(t, <-migrated)
}

// What MigrationSQL prints can be applied by hand, to install and to remove.
func TestMigrationSQL(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	conn := connect(t, url)
	apply := func(from, to int) {
		t.Helper()
		text, err := MigrationSQL("other", from, to)
		check(t, err)
		if strings.Contains(text, "@") || strings.Contains(text, "rota.") {
			t.Error("a placeholder is left in the text")
		}
		check(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Conn().PgConn().Exec(context.Background(), text).ReadAll()
			return err
		}))
	}
	apply(0, SchemaVersion)
	b := open(t, url, Options{Schema: "other", Migrate: MigrateCheck})
	wantWorks(t, b)
	apply(SchemaVersion, SchemaVersion) // only the functions
	wantWorks(t, b)
	apply(SchemaVersion, 0)
	_, err := Open(t.Context(), url, Options{Schema: "other", Migrate: MigrateCheck})
	wantError(t, err, core.ErrMisconfigured, "no rota tables")
	_, err = MigrationSQL("", 0, SchemaVersion+1)
	wantError(t, err, core.ErrInvalid, "schema version")
}
