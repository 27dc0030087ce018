package faultsuite

import (
	"syscall"
	"time"
	"unsafe"
)

// now reads a clock in nanoseconds that never steps and that all processes of
// this machine share.
func now() int64 {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return time.Now().UnixNano() // the same in all processes, as the kernel is
	}
	return ts.Nano()
}
