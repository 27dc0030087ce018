package rotapostgres

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// wantOpen fails unless Open refuses the URL with an error of the kind.
func wantOpen(t *testing.T, url string, kind error, text string) {
	t.Helper()
	b, err := Open(t.Context(), url, Options{})
	if err == nil {
		_ = b.Close()
		t.Fatalf("Open(%q) succeeded", url)
	}
	wantError(t, err, kind, text)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error has the password: %v", err)
	}
}

// as is the URL of a server for another user.
func as(t testing.TB, raw, user, password string) string {
	t.Helper()
	u, err := url.Parse(raw)
	check(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}

func TestOpenBadURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://host", "postgres://host:x/db", "postgres://u:sec%ret@host", "postgres://host/db?pool_max_conns=none",
		"postgres://host/db?sslmode=perhaps", "host=h port=none"} {
		wantOpen(t, url, core.ErrMisconfigured, "URL")
	}
	_, err := Open(t.Context(), testserver.SharedPostgres(t).URL(), Options{ListenURL: "http://host"})
	wantError(t, err, core.ErrMisconfigured, "ListenURL")
	_, err = New(t.Context(), nil, Options{})
	wantError(t, err, core.ErrInvalid, "pool")
}

func TestOpenNobodyThere(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	addr := listener.Addr().String()
	check(t, listener.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = Open(ctx, "postgres://postgres@"+addr+"/postgres?sslmode=disable", Options{})
	wantError(t, err, core.ErrUnavailable, "connection refused")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's own error as well", err)
	}
}

// Open waits while the server starts.
func TestOpenWhileStarting(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	server.Kill()
	opened := make(chan error, 1)
	go func() {
		b, err := Open(t.Context(), server.URL(), Options{})
		if err == nil {
			err = b.Close()
		}
		opened <- err
	}()
	time.Sleep(100 * time.Millisecond) // it may not be there yet
	server.Restart()
	check(t, <-opened)
}

func TestOpenRefused(t *testing.T) {
	t.Parallel()
	raw := testserver.SharedPostgres(t).URL()
	wantOpen(t, strings.Replace(raw, "/postgres?", "/nowhere?", 1), core.ErrMisconfigured, "no such database")
	wantOpen(t, as(t, raw, "nobody-there", "secret"), core.ErrMisconfigured, "user or password")
}

func TestOpenWrongPassword(t *testing.T) {
	t.Parallel()
	server := testserver.Postgres(t)
	conn := connect(t, server.URL())
	for _, sql := range []string{
		"CREATE ROLE somebody LOGIN PASSWORD 'right'",
		"CREATE TABLE hba (line text)",
		"COPY hba FROM PROGRAM 'cat pg_hba.conf'",
		"COPY (SELECT 'host all somebody 127.0.0.1/32 scram-sha-256' UNION ALL SELECT line FROM hba) TO PROGRAM 'cat > pg_hba.conf'",
		"SELECT pg_reload_conf()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		check(t, err)
	}
	eventually(t, "the server asks for a password", func() bool {
		_, err := Open(t.Context(), as(t, server.URL(), "somebody", "secret"), Options{})
		return errors.Is(err, core.ErrMisconfigured) && strings.Contains(err.Error(), "user or password")
	})
	wantOpen(t, as(t, server.URL(), "somebody", "secret"), core.ErrMisconfigured, "user or password")
}

// role makes a role on a new database and gives the database's URL for the owner
// and for the role.
func role(t *testing.T, grants ...string) (owner, other string) {
	t.Helper()
	owner = newDatabase(t)
	conn := connect(t, owner)
	u, err := url.Parse(owner)
	check(t, err)
	name := "role_" + strings.TrimPrefix(u.Path, "/")
	for _, sql := range append([]string{"CREATE ROLE " + name + " LOGIN"}, grants...) {
		_, err := conn.Exec(t.Context(), strings.ReplaceAll(sql, "ROLE_NAME", name))
		check(t, err)
	}
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name)
		check(t, err)
	})
	return owner, as(t, owner, name, "")
}

func TestOpenMissingRights(t *testing.T) {
	t.Parallel()
	owner, other := role(t)
	wantOpen(t, other, core.ErrMisconfigured, "lacks a right") // to create the schema
	open(t, owner, Options{})
	wantOpen(t, other, core.ErrMisconfigured, "lacks a right") // to look into it
	conn := connect(t, owner)
	u, err := url.Parse(other)
	check(t, err)
	grant := func(sql string) {
		_, err := conn.Exec(t.Context(), sql+" TO "+u.User.Username())
		check(t, err)
	}
	grant("GRANT USAGE ON SCHEMA rota")
	grant("GRANT SELECT ON ALL TABLES IN SCHEMA rota")
	wantOpen(t, other, core.ErrMisconfigured, "grant it SELECT, INSERT, UPDATE, DELETE")
	grant("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rota")
	wantOpen(t, other, core.ErrMisconfigured, "ticks")
	grant("GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA rota")
	wantWorks(t, open(t, other, Options{})) // all that a program needs
}

func TestOpenReadOnly(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	const readOnly = "&default_transaction_read_only=on"
	wantOpen(t, url+readOnly, core.ErrMisconfigured, "read-only")
	b := open(t, url, Options{})
	q := newQueue(t, b)
	q.publish("g", "a")
	wantOpen(t, url+readOnly, core.ErrMisconfigured, "read-only")

	// It becomes read-only later, as by a failover.
	_, err := connect(t, url).Exec(t.Context(), "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$")
	check(t, err)
	b = open(t, url+"&default_transaction_read_only=off", Options{})
	pool := newPool(t, url+"&pool_max_conns=1")
	ro := &Backend{pool: pool, opts: b.opts, base: b.base, hints: b.hints, watch: b.watch, hub: b.hub} // as if opened before
	_, err = ro.Publish(t.Context(), q.jobs("g", "b"))
	wantError(t, err, core.ErrMisconfigured, "read-only")
	_, err = ro.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: hour})
	wantError(t, err, core.ErrMisconfigured, "read-only")
	q.b = b
	equal(t, "state", q.state("b"), core.StateGone)
	q.complete(q.wantClaim("a"))
}

func TestOpenIsolation(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	wantOpen(t, url+"&default_transaction_isolation=serializable", core.ErrMisconfigured, "default_transaction_isolation")
}

func TestOpenOldServer(t *testing.T) {
	t.Parallel()
	wantError(t, serverFits(120022, "UTF8", "read committed"), core.ErrMisconfigured, "12.22, and 13 or later is needed")
	wantError(t, serverFits(150018, "LATIN1", "read committed"), core.ErrMisconfigured, "encoding LATIN1")
	check(t, serverFits(130000, "UTF8", "read committed"))
}

// What is done when a statement takes too long is nothing.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	q := newQueue(t, openShared(t))
	q.publish("g", "a")
	lock := connect(t, url)
	_, err := lock.Exec(t.Context(), "BEGIN; INSERT INTO rota.job (seq, run_at, created_at, queue, max_attempts, state, inline, id) SELECT 0, 0, 0, q.id, 1, 2, false, 'taken' FROM rota.queue q WHERE q.name = '"+q.name+"'")
	check(t, err)
	for setting, kind := range map[string]string{"statement_timeout=50": "statement_timeout", "lock_timeout=50": "lock_timeout"} {
		b := open(t, url+"&"+setting, Options{})
		_, err = b.Publish(t.Context(), q.jobs("g", "b", "taken"))
		wantError(t, err, core.ErrUnavailable, kind)
		wantError(t, err, core.ErrUnavailable, "nothing was done")
	}
	_, err = lock.Exec(t.Context(), "ROLLBACK")
	check(t, err)
	equal(t, "state", q.state("b"), core.StateGone)
	q.publish("g", "b", "taken")
}

func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testserver.SharedPostgres(t).URL()+"&pool_max_conns=1")
	b, err := New(t.Context(), pool, Options{Notify: NotifyOff})
	check(t, err)
	defer func() { check(t, b.Close()) }()
	conn, err := pool.Acquire(t.Context())
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	q := newQueue(t, b)
	_, err = b.Publish(ctx, q.jobs("g", "a"))
	wantError(t, err, core.ErrUnavailable, "all 1 connections of the pool were in use")
	conn.Release()
	q.publish("g", "a")
}

func TestClosedPool(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testserver.SharedPostgres(t).URL())
	check(t, err)
	b, err := New(t.Context(), pool, Options{})
	check(t, err)
	pool.Close()
	_, err = b.Now(t.Context())
	wantError(t, err, core.ErrClosed, "pool has been closed")
	check(t, b.Close())
}

// Bytes that no text column takes are refused, or replaced where they are only for
// people, or are in names that nothing can have.
func TestUnstorableText(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		for what, job := range map[string]core.NewJob{
			"id": {ID: bad}, "group": {Group: bad}, "kind": {Kind: bad}, "header": {Headers: map[string]string{"k": bad}},
			"header name": {Headers: map[string]string{bad: "v"}}, "key": {Dedup: core.Dedup{Key: bad}},
		} {
			job.Queue = q.name
			_, err := q.b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, ID: "whole"}, job}})
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("publish with the %s %q: got %v, want ErrInvalid", what, bad, err)
			}
		}
		equal(t, "state", q.state("whole"), core.StateGone)
		if _, err := q.b.Job(t.Context(), q.name, bad); !errors.Is(err, core.ErrNotFound) {
			t.Errorf("job %q: got %v, want ErrNotFound", bad, err)
		}
		q.stored(q.b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, ID: "a", Group: "g", Payload: []byte(bad)}}}))
		l := q.wantClaim("a")
		equal(t, "payload", string(l.Job.Payload), bad)
		o := outcomes(core.Dead, l)
		o[0].Error, o[0].Trace = bad, bad
		res, err := q.b.Settle(t.Context(), q.name, o)
		check(t, err)
		check(t, res[0].Err)
		job, err := q.b.Job(t.Context(), q.name, "a")
		check(t, err)
		equal(t, "error text", job.Failures[0].Error, "a\uFFFDb")
		_, err = q.b.Move(t.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"a", bad}, To: core.StateGone})
		check(t, err)
	}
}

// Every explanation is one sentence, and keeps the server's own words.
func TestServerErrors(t *testing.T) {
	t.Parallel()
	for code, known := range serverErrors {
		cause := &pgconn.PgError{Code: code, Message: "the server's words"}
		if len(code) == 2 {
			cause.Code += "001"
		}
		err := storeError(t.Context(), "publish", cause)
		wantError(t, err, known.kind, "the server's words")
		if !errors.Is(err, cause) || strings.Contains(known.text, ". ") {
			t.Errorf("%s: %v", code, err)
		}
	}
}
