package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PgBouncerServer is a PgBouncer that belongs to one test.
type PgBouncerServer struct {
	postgresTarget
	tb   testing.TB
	dir  string
	port *reservation
	proc *process
}

// PgBouncer starts a private PgBouncer in transaction mode before the PostgreSQL
// that the URL names; it lives until the test ends. sessions is how many it opens
// there, for any number of clients. A process that is root runs it as the user
// postgres, as it refuses to be root.
func PgBouncer(t testing.TB, target string, sessions int) *PgBouncerServer {
	t.Helper()
	b := &PgBouncerServer{tb: t}
	if err := b.start(target, sessions); err != nil {
		t.Fatalf("testserver: PgBouncer: %v", err)
	}
	t.Cleanup(b.cleanup)
	return b
}

// pgBouncerProgram is where Debian has it: not on the PATH of everybody.
const pgBouncerProgram = "/usr/sbin/pgbouncer"

func findPgBouncer() (string, error) {
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath(pgBouncerProgram); err == nil {
		return path, nil
	}
	return "", errors.New("no pgbouncer on the PATH or in /usr/sbin: install it (apt-get install pgbouncer)")
}

func (b *PgBouncerServer) start(target string, sessions int) error {
	program, err := findPgBouncer()
	if err != nil {
		return err
	}
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	if b.dir, err = postgresDir(); err != nil {
		return err
	}
	for range 10 {
		if err = b.launch(program, u, sessions); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(b.dir)
	}
	return err
}

func (b *PgBouncerServer) launch(program string, server *url.URL, sessions int) error {
	port, err := reserve(0)
	if err != nil {
		return err
	}
	b.port, b.postgresTarget = port, newPostgresTarget(port.addr())
	u, _ := url.Parse(b.url)
	u.Path = server.Path
	b.url = u.String()
	// Whoever connects, it is as this role to PostgreSQL.
	settings := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
logfile = %s
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`, server.Hostname(), server.Port(), server.User.Username(), port.port, b.logPath(), sessions)
	ini := filepath.Join(b.dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, []byte(settings), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(program, "-q", ini)
	cmd.Dir = b.dir
	if b.proc, err = startAs(cmd, postgresAttr()); err == nil {
		err = b.awaitReady()
	}
	if err == nil {
		return nil
	}
	if b.proc != nil {
		b.proc.kill()
	}
	b.port.release()
	said := b.log()
	if strings.Contains(said, "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("%w\n%s", err, said)
}

// awaitReady waits until it lets somebody through.
func (b *PgBouncerServer) awaitReady() error {
	deadline := time.Now().Add(readyPatience)
	for {
		err := b.probe()
		if err == nil {
			return nil
		}
		select {
		case <-b.proc.done:
			return fmt.Errorf("ended while starting: %v", b.proc.err)
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", readyPatience, err)
		}
	}
}

func (b *PgBouncerServer) probe() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

func (b *PgBouncerServer) logPath() string { return filepath.Join(b.dir, "pgbouncer.log") }

func (b *PgBouncerServer) log() string {
	said, err := os.ReadFile(b.logPath())
	if err != nil {
		return err.Error()
	}
	return string(said[max(0, len(said)-4096):])
}

func (b *PgBouncerServer) cleanup() {
	if b.proc.ended() {
		b.tb.Errorf("pgbouncer on %s ended by itself: %v", b.addr, b.proc.err)
	}
	if b.tb.Failed() {
		b.tb.Logf("log of pgbouncer on %s:\n%s", b.addr, b.log())
	}
	b.proc.kill()
	b.port.release()
	if err := os.RemoveAll(b.dir); err != nil {
		b.tb.Errorf("pgbouncer: %v", err)
	}
}
