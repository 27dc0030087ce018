package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// readyPatience is long because a loaded machine runs many tests at once.
	readyPatience = 30 * time.Second
	pollInterval  = 5 * time.Millisecond
)

var errPortTaken = errors.New("the port is taken")

// redisProcess is a private Redis without a test around it.
type redisProcess struct {
	redisTarget
	binary string
	dir    string
	cfg    config
	clock  *shiftedClock
	busGap int

	mu   sync.Mutex
	port *reservation
	proc *process
	// down says that the server was ended on purpose.
	down bool
}

// newRedisProcess starts a Redis with its files in dir. A busGap other than
// zero keeps the port at that distance free too.
func newRedisProcess(dir string, cfg config, busGap int) (*redisProcess, error) {
	binary, err := redisBinary()
	if err != nil {
		return nil, err
	}
	p := &redisProcess{binary: binary, dir: dir, cfg: cfg, busGap: busGap}
	if cfg.clock {
		if p.clock, err = newShiftedClock(dir, cfg.offset); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 10 {
		if p.port, err = reserve(busGap); err != nil {
			return nil, err
		}
		p.redisTarget = newRedisTarget(p.port.addr(), cfg.password)
		if err = p.launch(); err == nil {
			return p, nil
		}
		p.port.release()
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, err
}

// redisBinary finds the server program.
func redisBinary() (string, error) {
	const install = "install it (apt-get install redis-server) or name the program in ROTA_REDIS_SERVER"
	if named := os.Getenv("ROTA_REDIS_SERVER"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("ROTA_REDIS_SERVER names no program: %w", err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no redis-server or valkey-server on the PATH: " + install)
}

// launch starts the server on its port and waits until it answers.
func (p *redisProcess) launch() error {
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	from, err := logFile.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.binary, p.args()...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = os.Environ()
	if p.clock != nil {
		cmd.Env = append(cmd.Env, p.clock.env()...)
	}
	proc, err := start(cmd)
	if err != nil {
		return err
	}
	if err := p.awaitReady(proc); err != nil {
		proc.kill()
		said := p.log(from)
		if strings.Contains(said, "Address already in use") {
			return errPortTaken
		}
		return fmt.Errorf("%s: %w\n%s", p.binary, err, said)
	}
	p.proc, p.down = proc, false
	return nil
}

func (p *redisProcess) args() []string {
	args := []string{
		"--port", strconv.Itoa(p.port.port), "--bind", "127.0.0.1", "--dir", p.dir, "--save", "",
		// A replica of a test server should not wait for others to join it.
		"--repl-diskless-sync-delay", "0",
	}
	if p.cfg.aof {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if p.cfg.password != "" {
		args = append(args, "--requirepass", p.cfg.password)
	}
	return append(args, p.cfg.args...)
}

func (p *redisProcess) awaitReady(proc *process) error {
	deadline := time.Now().Add(readyPatience)
	for {
		err := p.probe(proc.pid())
		if err == nil {
			return nil
		}
		select {
		case <-proc.done:
			return fmt.Errorf("ended while starting: %v", proc.err)
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", readyPatience, err)
		}
	}
}

// probe asks whether the server on the port answers and is the process with
// that id: where two race for a port, the other one's answers must not count.
func (p *redisProcess) probe(pid int) error {
	conn, err := net.DialTimeout("tcp", p.addr, time.Second)
	if err != nil {
		return err
	}
	_ = conn.Close()
	client := redis.NewClient(p.options())
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if got := infoField(info, "process_id"); got != strconv.Itoa(pid) {
		return fmt.Errorf("process %s answers on %s, not process %d", got, p.addr, pid)
	}
	return nil
}

// infoField returns one field of an INFO or CLUSTER INFO reply.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (p *redisProcess) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.proc.kill()
}

func (p *redisProcess) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	return p.proc.terminate(10 * time.Second)
}

// restart starts the server again where it was. The reservation keeps other
// test servers off its port, so a taken port is a matter of a moment.
func (p *redisProcess) restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.proc.kill()
	deadline := time.Now().Add(readyPatience)
	for {
		err := p.launch()
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollInterval)
	}
}

// close ends the server for good. It tells if the server had ended by itself.
func (p *redisProcess) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	died := p.proc.ended() && !p.down
	p.down = true
	p.proc.kill()
	p.port.release()
	if died {
		return fmt.Errorf("ended by itself: %v", p.proc.err)
	}
	return nil
}

func (p *redisProcess) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc.signal(sig)
}

func (p *redisProcess) logPath() string { return filepath.Join(p.dir, "redis.log") }

// log returns what the server said since the log was that long, at most the
// last few kilobytes of it.
func (p *redisProcess) log(from int64) string {
	said, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	said = said[min(from, int64(len(said))):]
	return string(said[max(0, len(said)-4096):])
}
