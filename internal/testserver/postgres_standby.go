package testserver

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// Standby starts a hot standby of the server, which was started with
// Programs("pg_basebackup"); it follows it without its waiting
// (asynchronous streaming), and lives until the test ends. SELECT pg_promote() makes
// it a server of its own.
func (s *PostgresServer) Standby(t testing.TB) *PostgresServer {
	t.Helper()
	program := filepath.Join(s.bin, "pg_basebackup")
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("testserver: a standby needs pg_basebackup beside the server's programs: install it (apt-get install postgresql): %v", err)
	}
	p, err := beginPostgres(s.bin, s.cfg, func(data string) error {
		cmd := exec.Command(program, "-d", s.url, "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
		cmd.Dir = filepath.Dir(data)
		if out, err := runAs(cmd); err != nil {
			return fmt.Errorf("pg_basebackup: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("testserver: standby of postgres on %s: %v", s.addr, err)
	}
	standby := &PostgresServer{postgresProcess: p, tb: t}
	t.Cleanup(standby.cleanup)
	return standby
}
