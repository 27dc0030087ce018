//go:build !linux

package faultsuite

import "time"

// now reads a clock in nanoseconds that all processes of this machine share. It
// should not step while the tests run.
func now() int64 { return time.Now().UnixNano() }
