package testserver

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a Redis or Valkey that belongs to one test. Its methods may
// be called from any goroutine; one that fails fails the test.
type RedisServer struct {
	*redisProcess
	tb testing.TB
}

// Redis starts a private Redis that lives until the test ends. The program is
// the one that ROTA_REDIS_SERVER names, else redis-server or valkey-server on
// the PATH. It keeps nothing on disk unless [AOF] is given.
func Redis(t testing.TB, opts ...Option) *RedisServer {
	t.Helper()
	return startRedis(t, newConfig(opts), 0)
}

func startRedis(t testing.TB, cfg config, busGap int) *RedisServer {
	t.Helper()
	p, err := newRedisProcess(t.TempDir(), cfg, busGap)
	if err != nil {
		t.Fatalf("testserver: private Redis: %v", err)
	}
	s := &RedisServer{redisProcess: p, tb: t}
	t.Cleanup(s.cleanup)
	if cfg.clock {
		if err := s.checkClock(cfg.offset); err != nil {
			t.Fatalf("testserver: private Redis: %v", err)
		}
	}
	return s
}

func (s *RedisServer) cleanup() {
	if err := s.close(); err != nil {
		s.tb.Errorf("redis on %s: %v", s.addr, err)
	}
	if s.tb.Failed() {
		s.tb.Logf("log of redis on %s:\n%s", s.addr, s.log(0))
	}
}

// Kill ends the server with SIGKILL. When it returns, the port refuses
// connections, and keeps doing so until Restart.
func (s *RedisServer) Kill() { s.kill() }

// Stop asks the server to shut down and waits until it has.
func (s *RedisServer) Stop() {
	if err := s.stop(); err != nil {
		s.tb.Errorf("stopping redis on %s: %v", s.addr, err)
	}
}

// Restart starts the server again on the same port, with the same files and
// options, and returns when it answers. A server that still runs is killed
// first. With [AOF] all that was acknowledged is there again.
func (s *RedisServer) Restart() {
	if err := s.restart(); err != nil {
		s.tb.Errorf("restarting redis on %s: %v", s.addr, err)
	}
}

// Freeze stops the server where it is: connections stay open and new ones are
// still accepted by the kernel, but nothing answers until Thaw.
func (s *RedisServer) Freeze() { s.mustSignal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on with what was sent to it meanwhile.
func (s *RedisServer) Thaw() { s.mustSignal(syscall.SIGCONT) }

func (s *RedisServer) mustSignal(sig syscall.Signal) {
	if err := s.signal(sig); err != nil {
		s.tb.Errorf("%v to redis on %s: %v", sig, s.addr, err)
	}
}

// PID returns the server's process id, another one after each Restart.
func (s *RedisServer) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid()
}

// SetClock makes the wall clock of a server that was started with
// [ClockOffset] be off by d, at once and across restarts.
func (s *RedisServer) SetClock(d time.Duration) {
	if s.clock == nil {
		s.tb.Errorf("redis on %s was not started with ClockOffset", s.addr)
		return
	}
	if err := s.clock.set(d); err != nil {
		s.tb.Errorf("clock of redis on %s: %v", s.addr, err)
	}
}

// checkClock proves that the server's clock is where the test wants it, so
// that a preload that does not take cannot make a clock test pass.
func (s *RedisServer) checkClock(want time.Duration) error {
	client := redis.NewClient(s.options())
	defer client.Close()
	got, err := client.Time(context.Background()).Result()
	if err != nil {
		return err
	}
	if off := time.Until(got); (off - want).Abs() > 10*time.Second {
		return fmt.Errorf("its clock is off by %v, not by %v", off, want)
	}
	return nil
}
