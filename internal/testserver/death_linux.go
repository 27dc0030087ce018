package testserver

import "syscall"

// dieWithParent makes the kernel kill the process when the thread that starts
// it ends, however that happens.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
