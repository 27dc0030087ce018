package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisKillRefusesAndRestartIsEmpty(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := Redis(t)
	client := s.Client(t)
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	if err := refuses(addr); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted as process %d on %s, was %d on %s", s.PID(), s.Addr(), pid, addr)
	}
	if err := client.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET after a restart without AOF: %v, want redis.Nil", err)
	}
	s.Stop()
	if err := refuses(addr); err != nil {
		t.Error(err)
	}
}

func TestRedisAOFKeepsAllThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := Redis(t, AOF())
	client := s.Client(t)
	acked := make(chan int64)
	go func() {
		var last int64
		for {
			n, err := client.Incr(ctx, "n").Result()
			if err != nil {
				acked <- last
				return
			}
			last = n
		}
	}()
	eventually(t, func() error {
		n, err := s.Client(t).Get(ctx, "n").Int64()
		if err == nil && n < 100 {
			err = fmt.Errorf("only %d so far", n)
		}
		return err
	})
	s.Kill()
	want := <-acked
	s.Restart()
	got, err := client.Get(ctx, "n").Int64()
	if err != nil || got < want || got > want+1 {
		t.Errorf("%d, %v after the crash; %d were acknowledged", got, err, want)
	}
}

func TestRedisPasswordAndArgs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := Redis(t, Password("a b:c/d@"), Args("--maxmemory", "8mb"))
	got, err := s.Client(t).ConfigGet(ctx, "maxmemory").Result()
	if err != nil || got["maxmemory"] != "8388608" {
		t.Errorf("maxmemory is %v, %v", got, err)
	}
	stranger := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer stranger.Close()
	if err := stranger.Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("PING without the password: %v", err)
	}
}

func TestRedisBadArgumentIsReported(t *testing.T) {
	t.Parallel()
	said := record(t, func(tb testing.TB) { Redis(tb, Args("--no-such-thing", "1")) })
	if len(said) != 1 || !strings.Contains(said[0], "no-such-thing") {
		t.Errorf("reported %q", said)
	}
}

func TestRedisClockOffset(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, offset := range []time.Duration{time.Hour, -time.Hour, 1500 * time.Millisecond} {
		s := Redis(t, ClockOffset(offset))
		client := s.Client(t)
		off := func() time.Duration {
			now, err := client.Time(ctx).Result()
			if err != nil {
				t.Fatal(err)
			}
			return time.Until(now)
		}
		near := func(want time.Duration) {
			t.Helper()
			if got := off(); (got - want).Abs() > time.Second {
				t.Errorf("the clock is off by %v, want %v", got, want)
			}
		}
		near(offset)
		inScript, err := client.Eval(ctx, "return tonumber(redis.call('TIME')[1])", nil).Int64()
		if err != nil || (time.Until(time.Unix(inScript, 0))-offset).Abs() > 3*time.Second {
			t.Errorf("TIME in a script says %d, %v", inScript, err)
		}
		s.SetClock(-offset)
		near(-offset)
		s.Restart()
		near(-offset)
		// Time passes at its usual pace, and what is to expire does.
		if err := client.Set(ctx, "k", "v", 20*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if n, err := client.Exists(ctx, "k").Result(); n > 0 || err != nil {
				return fmt.Errorf("EXISTS: %d, %v", n, err)
			}
			return nil
		})
	}
}

func TestRedisFrozenAnswersAfterThaw(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	client := s.Client(t)
	s.Freeze()
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	conn := client.WithTimeout(100 * time.Millisecond)
	if err := conn.Ping(short).Err(); err == nil {
		t.Error("a frozen server answered")
	}
	s.Thaw()
	if err := client.Ping(context.Background()).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisDeathIsReported(t *testing.T) {
	t.Parallel()
	said := record(t, func(tb testing.TB) {
		s := Redis(tb)
		_ = s.signal(syscall.SIGKILL)
		<-s.proc.done
	})
	if len(said) != 1 || !strings.Contains(said[0], "ended by itself") {
		t.Errorf("reported %q", said)
	}
}

func TestRedisRestartWaitsForItsPort(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	s.Kill()
	thief := NewProxy(t, s.Addr(), RESP)
	// The proxy is a listener at hand: put it on the server's port.
	thief.Refuse()
	thief.port.release()
	thief.port = &reservation{port: s.port.port}
	thief.Resume()
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		s.Restart()
	}()
	eventually(t, func() error {
		if !strings.Contains(s.log(0), "Address already in use") {
			return errors.New("the restart has not met the taken port")
		}
		return nil
	})
	thief.Refuse()
	<-restarted
	if err := s.Client(t).Ping(context.Background()).Err(); err != nil {
		t.Error(err)
	}
}

func TestRedisProbeKnowsItsProcess(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	if err := s.probe(s.PID()); err != nil {
		t.Error(err)
	}
	if err := s.probe(s.PID() + 1); err == nil {
		t.Error("another process's answer was taken for the server's")
	}
}

func TestRedisMissingProgramIsNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for named, want := range map[string]string{
		"":            "apt-get install redis-server",
		"/no/such/it": "ROTA_REDIS_SERVER names no program",
	} {
		t.Setenv("ROTA_REDIS_SERVER", named)
		said := record(t, func(tb testing.TB) { Redis(tb) })
		if len(said) != 1 || !strings.Contains(said[0], want) {
			t.Errorf("reported %q, want something with %q", said, want)
		}
	}
	if _, err := newShiftedClock(t.TempDir(), 0); err == nil || !strings.Contains(err.Error(), "C compiler") {
		t.Errorf("a clock without a compiler: %v", err)
	}
}

func init() {
	RegisterChild("redis-owner", func() {
		p, err := newRedisProcess(os.Getenv("DIR"), config{}, 0)
		if err != nil {
			panic(err)
		}
		fmt.Println(p.addr)
		select {}
	})
}

func TestRedisDiesWithItsTestProcess(t *testing.T) {
	t.Parallel()
	owner := Child(t, "redis-owner", "DIR="+t.TempDir())
	addr, ok := owner.Next()
	if !ok || refuses(addr) == nil {
		t.Fatalf("no server on %q", addr)
	}
	owner.Kill()
	eventually(t, func() error { return refuses(addr) })
}
