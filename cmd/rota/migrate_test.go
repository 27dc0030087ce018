package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/backends/postgres"
	"github.com/rota-queue/rota/internal/testserver"
)

func newDatabase(t testing.TB) string {
	t.Helper()
	return testserver.SharedPostgres(t).NewDatabase(t)
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// contents describes all that is in a schema of a database: tables with their
// columns and settings, indexes, sequences, functions, and what meta says.
func contents(t testing.TB, url, schema string) string {
	t.Helper()
	conn := connect(t, url)
	rows, err := conn.Query(t.Context(), `WITH n AS (SELECT oid FROM pg_namespace WHERE nspname = $1)
		SELECT concat_ws(' ', 'class', relkind, relname, reloptions::text) FROM pg_class WHERE relnamespace = (TABLE n)
		UNION ALL SELECT concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, pg_get_expr(d.adbin, d.adrelid))
			FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
			WHERE c.relnamespace = (TABLE n) AND a.attnum > 0 AND c.relkind <> 'i'
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = $1
		UNION ALL SELECT concat_ws(' ', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = (TABLE n)
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = (TABLE n)
		ORDER BY 1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) > 0 {
		var meta string
		if err := conn.QueryRow(t.Context(), "SELECT m::text FROM "+pgx.Identifier{schema}.Sanitize()+".meta m").Scan(&meta); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, meta)
	}
	return strings.Join(lines, "\n")
}

func opens(t testing.TB, url, schema string) {
	t.Helper()
	b, err := rotapostgres.Open(t.Context(), url, rotapostgres.Options{Schema: schema, Migrate: rotapostgres.MigrateCheck})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := contents(t, db, "rota")
	for range 2 {
		rota(t, "migrate", "-check", "-url", db).want(t, exitNotCurrent, `schema "rota" has no rota tables`)
		var installed string
		for i := range 2 {
			rota(t, "migrate", "-url", db).want(t, exitDone, fmt.Sprintf(`schema "rota" has version %d`, rotapostgres.SchemaVersion))
			now := contents(t, db, "rota")
			if i > 0 && now != installed {
				t.Error("migrating again changed something")
			}
			installed = now
		}
		rota(t, "migrate", "-check", "-url", db).want(t, exitDone, `schema "rota" is current`)
		opens(t, db, "")

		rota(t, "migrate", "-url", db, "-to", "0").want(t, exitUsage, "-drop-all-data")
		if contents(t, db, "rota") != installed {
			t.Fatal("-to 0 without -drop-all-data changed something")
		}
		for range 2 {
			rota(t, "migrate", "-url", db, "-to", "0", "-drop-all-data").want(t, exitDone, `schema "rota" is removed`)
		}
		if got := contents(t, db, "rota"); got != before {
			t.Errorf("left in the schema:\n%s", got)
		}
	}
}

// Schemas do not touch each other.
func TestMigrateSchema(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, schema := range []string{"one", "_other_2"} {
		rota(t, "migrate", "-url", db, "-schema", schema).want(t, exitDone, schema)
		opens(t, db, schema)
	}
	rota(t, "migrate", "-url", db, "-schema", "one", "-to", "0", "-drop-all-data").want(t, exitDone, "one")
	opens(t, db, "_other_2")
	rota(t, "migrate", "-check", "-url", db, "-schema", "one").want(t, exitNotCurrent, "one")
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := rota(t, "migrate", "-url", db); got.code != exitDone {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
		})
	}
	wg.Wait()
	opens(t, db, "")
}

// What is printed does what the command does: from nothing, from the newest (which
// replaces the functions), and back to nothing.
func TestMigratePrint(t *testing.T) {
	t.Parallel()
	byHand, byRota := newDatabase(t), newDatabase(t)
	conn := connect(t, byHand)
	apply := func(args ...string) {
		t.Helper()
		args = append([]string{"migrate", "-print", "-schema", "some_1"}, args...)
		got := rota(t, append(args, "-url", "postgres://127.0.0.1:1/nobody")...) // no server is asked
		got.want(t, exitDone, "single-transaction")
		exec(t, conn, "BEGIN;"+got.stdout+";COMMIT")
	}
	newest := fmt.Sprint(rotapostgres.SchemaVersion)
	apply()
	rota(t, "migrate", "-url", byRota, "-schema", "some_1").want(t, exitDone, "some_1")
	want := contents(t, byRota, "some_1")
	if got := contents(t, byHand, "some_1"); got != want || want == "" {
		t.Fatalf("the printed SQL made:\n%s\nthe command made:\n%s", got, want)
	}
	exec(t, conn, "DROP FUNCTION some_1.take; UPDATE some_1.meta SET functions = 'old'")
	rota(t, "migrate", "-check", "-url", byHand, "-schema", "some_1").want(t, exitNotCurrent, "functions of another version")
	apply("-from", newest)
	if got := contents(t, byHand, "some_1"); got != want {
		t.Fatalf("the printed SQL for the functions made:\n%s\nthe command made:\n%s", got, want)
	}
	apply("-to", "0")
	if got := contents(t, byHand, "some_1"); got != "" {
		t.Errorf("left in the schema:\n%s", got)
	}
}

// Without -url the environment names the server.
func TestMigrateEnvironment(t *testing.T) {
	db := newDatabase(t)
	t.Setenv("DATABASE_URL", db)
	rota(t, "migrate").want(t, exitDone, "has version")
	opens(t, db, "")

	db = newDatabase(t)
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DATABASE_URL", "")
	for name, value := range map[string]string{"PGHOST": u.Hostname(), "PGPORT": u.Port(), "PGUSER": u.User.Username(), "PGDATABASE": strings.TrimPrefix(u.Path, "/"), "PGSSLMODE": "disable"} {
		t.Setenv(name, value)
	}
	rota(t, "migrate").want(t, exitDone, "has version")
	opens(t, db, "")
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/nobody")
	rota(t, "migrate", "-url", db, "-check").want(t, exitDone, "is current")
}

func TestMigrateFails(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	conn := connect(t, db)
	rota(t, "migrate", "-url", strings.Replace(db, "postgres@", "no-such-user:secret@", 1)).want(t, exitFailed, "user or password")
	rota(t, "migrate", "-url", db+"&default_transaction_read_only=on").want(t, exitFailed, "read-only")
	if contents(t, db, "rota") != "" {
		t.Error("what failed left something behind")
	}
	rota(t, "migrate", "-url", db).want(t, exitDone, "has version")
	exec(t, conn, "UPDATE rota.meta SET version = version + 1")
	for _, args := range [][]string{{}, {"-to", "0", "-drop-all-data"}} {
		rota(t, append([]string{"migrate", "-url", db}, args...)...).want(t, exitFailed, "update the program")
	}
	rota(t, "migrate", "-check", "-url", db).want(t, exitNotCurrent, "update the program")

	// Nobody listens there.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	got := rota(t, "migrate", "-url", "postgres://u:secret@"+addr+"/db?sslmode=prefer")
	got.want(t, exitFailed, "connection refused")
	if strings.Contains(got.stderr, "secret") {
		t.Errorf("the error has the password: %s", got.stderr)
	}
}

// -wait is for a server that starts later.
func TestMigrateWait(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	server.Kill()
	done := make(chan said, 1)
	go func() { done <- rota(t, "migrate", "-wait", "30s", "-url", server.URL()) }()
	server.Restart()
	(<-done).want(t, exitDone, "has version")
}
