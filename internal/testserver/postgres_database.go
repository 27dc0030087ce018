package testserver

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// NewDatabase makes an empty database that is dropped when the test ends, with
// whoever is still connected to it, and gives the URL of its owner.
func (s *SharedPostgresServer) NewDatabase(t testing.TB) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("-", "_", "/", "_").Replace(UniqueName(t)))
	name = "d" + name[max(0, len(name)-50):] // a name has at most 63 bytes
	id := pgx.Identifier{name}.Sanitize()
	s.exec(t, "CREATE DATABASE "+id)
	t.Cleanup(func() { s.exec(t, "DROP DATABASE "+id+" WITH (FORCE)") })
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatalf("the server's URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

func (s *SharedPostgresServer) exec(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		t.Fatalf("the shared PostgreSQL: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Errorf("%s: %v", sql, err)
	}
}
