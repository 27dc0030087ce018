package testserver

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// OwnerFunction is the function each running process has a goroutine in, for
// goleak.IgnoreAnyFunction in tests that run while a shared server does.
const OwnerFunction = "github.com/rota-queue/rota/internal/testserver.own"

// process is a running child process that dies with this one.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was reaped
	err  error         // what Wait said; to be read after done
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go own(p, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// own starts the process and waits for its end on one locked thread: the
// kernel sends the death signal when the thread that forked ends, and the
// runtime would be free to end any other one.
func own(p *process, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process as a crash would, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended already
	<-p.done
}

// terminate asks the process to end, and kills it if it does not.
func (p *process) terminate(patience time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		p.kill()
		return errors.New("did not end when asked, so it was killed")
	}
}

// signal does nothing to a process that has ended.
func (p *process) signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
