//go:build !linux

package testserver

import "syscall"

// postgresAttr does nothing here: the tests do not run as root, and only Linux
// has a death signal.
func postgresAttr() *syscall.SysProcAttr { return nil }

func givePostgres(string) error { return nil }
