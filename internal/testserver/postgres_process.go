package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresTarget is where a PostgreSQL is, whoever runs it.
type postgresTarget struct {
	addr, url string
}

func newPostgresTarget(addr string) postgresTarget {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Host: addr, Path: "/postgres", RawQuery: "sslmode=disable"}
	return postgresTarget{addr: addr, url: u.String()}
}

// Addr returns host:port.
func (t postgresTarget) Addr() string { return t.addr }

// URL returns the postgres:// URL of a superuser.
func (t postgresTarget) URL() string { return t.url }

// postgresProcess is a private PostgreSQL without a test around it.
type postgresProcess struct {
	postgresTarget
	bin   string
	dir   string // data and log; removed by close
	cfg   config
	clock *shiftedClock

	mu   sync.Mutex
	port *reservation
	proc *process
	// down says that the server was ended on purpose.
	down bool
}

func newPostgresProcess(cfg config) (*postgresProcess, error) {
	bin, err := postgresBin(cfg.programs...)
	if err != nil {
		return nil, err
	}
	return beginPostgres(bin, cfg, func(data string) error { return copyCluster(bin, data) })
}

// beginPostgres starts a server on the data folder that fill makes.
func beginPostgres(bin string, cfg config, fill func(data string) error) (*postgresProcess, error) {
	p := &postgresProcess{bin: bin, cfg: cfg}
	var err error
	if p.dir, err = postgresDir(); err != nil {
		return nil, err
	}
	if err = p.begin(fill); err != nil {
		_ = os.RemoveAll(p.dir)
		return nil, err
	}
	return p, nil
}

func (p *postgresProcess) begin(fill func(data string) error) error {
	if err := fill(p.data()); err != nil {
		return err
	}
	if p.cfg.clock {
		var err error
		if p.clock, err = newShiftedClock(p.dir, p.cfg.offset); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 10 {
		var err error
		if p.port, err = reserve(0); err != nil {
			return err
		}
		p.postgresTarget = newPostgresTarget(p.port.addr())
		if err = p.launch(); err == nil {
			return nil
		}
		p.port.release()
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return errPortTaken
}

func (p *postgresProcess) data() string    { return filepath.Join(p.dir, "data") }
func (p *postgresProcess) logPath() string { return filepath.Join(p.dir, "postgres.log") }

// launch starts the server on its port and waits until it answers.
func (p *postgresProcess) launch() error {
	logFile, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	from, err := logFile.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), p.args()...)
	cmd.Dir = p.dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if p.clock != nil {
		cmd.Env = append(cmd.Env, p.clock.env()...)
	}
	proc, err := startAs(cmd, postgresAttr())
	if err != nil {
		return err
	}
	if err := p.awaitReady(proc); err != nil {
		proc.kill()
		said := p.log(from)
		if strings.Contains(said, "Address already in use") {
			return errPortTaken
		}
		return fmt.Errorf("postgres: %w\n%s", err, said)
	}
	p.proc, p.down = proc, false
	return nil
}

// startAs is start with attributes of its own.
func startAs(cmd *exec.Cmd, attr *syscall.SysProcAttr) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = attr
	started := make(chan error, 1)
	go own(p, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *postgresProcess) args() []string {
	return append([]string{
		"-D", p.data(), "-p", strconv.Itoa(p.port.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		// A killed server keeps what it has given to the kernel, so what it has
		// acknowledged survives without these two.
		"-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "shared_buffers=64MB", "-c", "max_connections=200", "-c", "log_line_prefix=%m [%p] ",
	}, p.cfg.args...)
}

// awaitReady waits until the server says that it is ready, in the file it keeps,
// and lets somebody in.
func (p *postgresProcess) awaitReady(proc *process) error {
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

func (p *postgresProcess) probe(pid int) error {
	file, err := os.Open(filepath.Join(p.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	defer file.Close()
	var lines []string
	for s := bufio.NewScanner(file); s.Scan(); {
		lines = append(lines, strings.TrimSpace(s.Text()))
	}
	if len(lines) < 8 || lines[0] != strconv.Itoa(pid) || lines[7] != "ready" && lines[7] != "standby" {
		return errors.New("postmaster.pid does not say ready or standby")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// sessions lists the processes of the server beside the postmaster: its children.
func (p *postgresProcess) sessions() []int {
	pid := strconv.Itoa(p.proc.pid())
	raw, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		return nil // not Linux, or it has ended
	}
	var pids []int
	for word := range strings.FieldsSeq(string(raw)) {
		if n, err := strconv.Atoi(word); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// killAll ends the postmaster and its children as a crash of the machine would,
// and returns when they are gone: as long as one lives, the server does not start
// again.
func (p *postgresProcess) killAll() {
	if p.proc.ended() {
		return
	}
	children := p.sessions()
	_ = p.proc.cmd.Process.Kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.proc.done
	deadline := time.Now().Add(readyPatience)
	for _, pid := range children {
		for alive(pid) && time.Now().Before(deadline) {
			time.Sleep(pollInterval)
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// A zombie holds nothing any more. Its name may have spaces and parentheses.
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func (p *postgresProcess) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.killAll()
}

func (p *postgresProcess) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	// SIGINT: sessions are ended, not waited for.
	if err := p.proc.signal(syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.proc.done:
		return nil
	case <-time.After(10 * time.Second):
		p.killAll()
		return errors.New("did not end when asked, so it was killed")
	}
}

func (p *postgresProcess) restart() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.killAll()
	deadline := time.Now().Add(readyPatience)
	for {
		err := p.launch()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * pollInterval)
	}
}

// close ends the server for good. It tells if the server had ended by itself.
func (p *postgresProcess) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	died := p.proc.ended() && !p.down
	p.down = true
	p.killAll()
	p.port.release()
	if died {
		return fmt.Errorf("ended by itself: %v", p.proc.err)
	}
	return os.RemoveAll(p.dir)
}

func (p *postgresProcess) signalAll(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	children := p.sessions()
	if err := p.proc.signal(sig); err != nil {
		return err
	}
	// After the postmaster has stopped it starts no others.
	for _, pid := range append(children, p.sessions()...) {
		_ = syscall.Kill(pid, sig)
	}
	return nil
}

// log returns what the server said since the log was that long, at most the last
// few kilobytes of it.
func (p *postgresProcess) log(from int64) string {
	said, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	said = said[min(from, int64(len(said))):]
	return string(said[max(0, len(said)-4096):])
}
