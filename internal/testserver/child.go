package testserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childEnv names the registered main that a process runs instead of the tests.
const childEnv = "ROTA_TEST_CHILD"

// childPatience bounds each wait for a child, so that a hanging child is a
// failure with a message, not a test timeout.
const childPatience = 60 * time.Second

var children = map[string]func(){}

// RegisterChild names a main function for [Child]. It must be called from an
// init function of the test package; a name is registered once.
func RegisterChild(name string, main func()) {
	if _, ok := children[name]; ok {
		panic("testserver: child " + name + " is registered twice")
	}
	children[name] = main
}

func runChild(name string) int {
	main, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "testserver: no child %q is registered\n", name)
		return 3
	}
	// A child of this child must say for itself what it is.
	_ = os.Unsetenv(childEnv)
	main()
	return 0
}

// ChildProcess is the test binary, run again as a worker or publisher that can
// be killed. Its methods may be called from any goroutine.
type ChildProcess struct {
	tb     testing.TB
	name   string
	proc   *process
	stderr string

	mu      sync.Mutex
	lines   []string
	next    int
	eof     bool
	changed chan struct{} // closed and replaced when lines or eof change
	killed  bool          // by Kill
	waited  bool          // the test knows how the process ended
}

// Child runs the registered main of that name in a process of its own, with
// env ("KEY=value") added to this process's environment. The process is killed
// when the test ends, or when this process does. If it ends by itself with an
// error that the test does not look at with Wait, or reports a data race, the
// test fails.
func Child(t testing.TB, name string, env ...string) *ChildProcess {
	t.Helper()
	if !mainRuns.Load() {
		t.Fatal("testserver.Child needs a TestMain that calls testserver.Main")
	}
	if _, ok := children[name]; !ok {
		t.Fatalf("testserver: no child %q is registered", name)
	}
	c, err := startChild(t, name, env)
	if err != nil {
		t.Fatalf("testserver: child %s: %v", name, err)
	}
	t.Cleanup(c.close)
	return c
}

func startChild(t testing.TB, name string, env []string) (*ChildProcess, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &ChildProcess{tb: t, name: name, stderr: filepath.Join(t.TempDir(), "stderr"), changed: make(chan struct{})}
	stderr, err := os.Create(c.stderr)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	// Should the TestMain not dispatch children, then no test must run there:
	// it would start children without end.
	cmd := exec.Command(exe, "-test.run=^$")
	cmd.Env = append(append(os.Environ(), childEnv+"="+name), env...)
	cmd.Stdout, cmd.Stderr = w, stderr
	if c.proc, err = start(cmd); err != nil {
		_ = r.Close()
		return nil, err
	}
	go c.read(r)
	return c, nil
}

// read takes the child's lines as they come, so that a child never waits for
// its parent, and drops an unfinished last one: half a line of a killed child
// says something else than the whole.
func (c *ChildProcess) read(pipe io.ReadCloser) {
	defer pipe.Close()
	r := bufio.NewReader(pipe)
	for {
		line, err := r.ReadString('\n')
		c.mu.Lock()
		if err == nil {
			c.lines = append(c.lines, line[:len(line)-1])
		} else {
			c.eof = true
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Next returns the child's next line of standard output, waiting for it, and
// false when there will be none.
func (c *ChildProcess) Next() (string, bool) {
	c.tb.Helper()
	deadline := time.After(childPatience)
	for {
		c.mu.Lock()
		if c.next < len(c.lines) {
			line := c.lines[c.next]
			c.next++
			c.mu.Unlock()
			return line, true
		}
		eof, changed := c.eof, c.changed
		c.mu.Unlock()
		if eof {
			return "", false
		}
		select {
		case <-changed:
		case <-deadline:
			c.tb.Errorf("child %s said nothing for %v", c.name, childPatience)
			return "", false
		}
	}
}

// Rest returns all lines that Next has not, up to the child's last one: all
// that the child wrote before it ended or was killed.
func (c *ChildProcess) Rest() []string {
	c.tb.Helper()
	var rest []string
	for {
		line, ok := c.Next()
		if !ok {
			return rest
		}
		rest = append(rest, line)
	}
}

// Kill ends the child with SIGKILL and returns when it is gone.
func (c *ChildProcess) Kill() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.proc.kill()
}

// Wait returns how the child ended: nil, or an *exec.ExitError.
func (c *ChildProcess) Wait() error {
	c.tb.Helper()
	c.mu.Lock()
	c.waited = true
	c.mu.Unlock()
	select {
	case <-c.proc.done:
	case <-time.After(childPatience):
		c.tb.Errorf("child %s did not end within %v", c.name, childPatience)
		c.proc.kill()
	}
	return c.proc.err
}

// Signal sends a signal such as syscall.SIGTERM.
func (c *ChildProcess) Signal(sig os.Signal) error { return c.proc.signal(sig) }

// Freeze stops the child where it is, as a long pause of a machine would.
func (c *ChildProcess) Freeze() error { return c.proc.signal(syscall.SIGSTOP) }

// Thaw lets a frozen child go on: it is now a zombie with old leases.
func (c *ChildProcess) Thaw() error { return c.proc.signal(syscall.SIGCONT) }

// PID returns the child's process id.
func (c *ChildProcess) PID() int { return c.proc.pid() }

func (c *ChildProcess) close() {
	failed := c.proc.ended() && c.failed()
	c.proc.kill()
	c.Rest()
	said, _ := os.ReadFile(c.stderr)
	switch {
	case bytes.Contains(said, []byte("WARNING: DATA RACE")):
		c.tb.Errorf("child %s has a data race:\n%s", c.name, said)
	case failed:
		c.tb.Errorf("child %s failed: %v\n%s", c.name, c.proc.err, said)
	case c.tb.Failed() && len(said) > 0:
		c.tb.Logf("child %s said:\n%s", c.name, said)
	}
}

// failed tells whether an ended child has ended in a way the test neither
// caused nor knows of.
func (c *ChildProcess) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc.err == nil || c.waited {
		return false
	}
	status, ok := c.proc.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return !(c.killed && ok && status.Signaled() && status.Signal() == syscall.SIGKILL)
}
