package testserver

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a PostgreSQL that belongs to one test. Its methods may be
// called from any goroutine; one that fails fails the test.
type PostgresServer struct {
	*postgresProcess
	tb testing.TB
}

// Postgres starts a private PostgreSQL that lives until the test ends. Its
// programs are those in the folder that ROTA_POSTGRES_BIN names, else those on
// the PATH (or where they are linked to), else the newest of /usr/lib/postgresql. A process that is root runs
// it as the user postgres. What it has acknowledged is there again after Kill and
// Restart, though not after the machine's own crash. Args are given to the
// server as they are, such as Args("-c", "max_connections=20").
func Postgres(t testing.TB, opts ...Option) *PostgresServer {
	t.Helper()
	cfg := newConfig(opts)
	p, err := newPostgresProcess(cfg)
	if err != nil {
		t.Fatalf("testserver: private PostgreSQL: %v", err)
	}
	s := &PostgresServer{postgresProcess: p, tb: t}
	t.Cleanup(s.cleanup)
	if cfg.clock {
		if err := s.checkClock(cfg.offset); err != nil {
			t.Fatalf("testserver: private PostgreSQL: %v", err)
		}
	}
	return s
}

func (s *PostgresServer) cleanup() {
	said := s.log(0)
	if err := s.close(); err != nil {
		s.tb.Errorf("postgres on %s: %v", s.addr, err)
	}
	if s.tb.Failed() {
		s.tb.Logf("log of postgres on %s:\n%s", s.addr, said)
	}
}

// Kill ends the server with SIGKILL, its sessions too. When it returns, the port
// refuses connections, and keeps doing so until Restart.
func (s *PostgresServer) Kill() { s.kill() }

// Stop asks the server to end all sessions and shut down, and waits until it has.
func (s *PostgresServer) Stop() {
	if err := s.stop(); err != nil {
		s.tb.Errorf("stopping postgres on %s: %v", s.addr, err)
	}
}

// Restart starts the server again on the same port, with the same files and
// options, and returns when it answers. A server that still runs is killed
// first.
func (s *PostgresServer) Restart() {
	if err := s.restart(); err != nil {
		s.tb.Errorf("restarting postgres on %s: %v", s.addr, err)
	}
}

// Freeze stops the server and all its sessions where they are.
func (s *PostgresServer) Freeze() { s.mustSignal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on with what was sent to it meanwhile.
func (s *PostgresServer) Thaw() { s.mustSignal(syscall.SIGCONT) }

func (s *PostgresServer) mustSignal(sig syscall.Signal) {
	if err := s.signalAll(sig); err != nil {
		s.tb.Errorf("%v to postgres on %s: %v", sig, s.addr, err)
	}
}

// PID returns the process id of the postmaster, another one after each Restart.
func (s *PostgresServer) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// SetClock makes the wall clock of a server that was started with [ClockOffset]
// be off by d, at once and across restarts.
func (s *PostgresServer) SetClock(d time.Duration) {
	if s.clock == nil {
		s.tb.Errorf("postgres on %s was not started with ClockOffset", s.addr)
		return
	}
	if err := s.clock.set(d); err != nil {
		s.tb.Errorf("clock of postgres on %s: %v", s.addr, err)
	}
}

// checkClock proves that the server's clock is where the test wants it.
func (s *PostgresServer) checkClock(want time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var got time.Time
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&got); err != nil {
		return err
	}
	if off := time.Until(got); (off - want).Abs() > 10*time.Second {
		return fmt.Errorf("its clock is off by %v, not by %v", off, want)
	}
	return nil
}
