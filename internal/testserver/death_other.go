//go:build !linux

package testserver

import "syscall"

// dieWithParent does nothing here: only Linux has a death signal. A killed
// test process leaves its servers behind on other systems.
func dieWithParent() *syscall.SysProcAttr { return nil }
