package testserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// programs makes a folder with programs of these names.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The folder must have all programs: a link to one of them leads to the others.
func TestPostgresBin(t *testing.T) {
	whole := programs(t, "postgres", "initdb", "pgbench")
	linked := programs(t)
	if err := os.Symlink(filepath.Join(whole, "postgres"), filepath.Join(linked, "postgres")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROTA_POSTGRES_BIN", "")
	for name, path := range map[string]string{"itself": whole, "by a link": linked} {
		t.Setenv("PATH", path)
		for _, more := range [][]string{nil, {"pgbench"}} {
			if got, err := postgresBin(more...); err != nil || got != whole {
				t.Errorf("%s, with %q: got %q, %v; want %q", name, more, got, err, whole)
			}
		}
	}
	// One without pgbench serves who does not need it.
	small := programs(t, "postgres", "initdb")
	t.Setenv("PATH", small)
	if got, err := postgresBin(); err != nil || got != small {
		t.Errorf("got %q, %v; want %q", got, err, small)
	}
	if got, err := postgresBin("pgbench"); err == nil && got == small {
		t.Errorf("got %q, which lacks pgbench", got)
	}
	if _, err := postgresBin("no-such-program"); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("got %v, want an error that names the program", err)
	}
	// Whoever names a folder wants that one or an error.
	t.Setenv("ROTA_POSTGRES_BIN", small)
	if got, err := postgresBin(); err != nil || got != small {
		t.Errorf("got %q, %v; want %q", got, err, small)
	}
	if _, err := postgresBin("pgbench"); err == nil || !strings.HasSuffix(err.Error(), "lacks pgbench") {
		t.Errorf("got %v, want an error that names the program", err)
	}
}
