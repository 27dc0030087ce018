package testserver

import (
	"fmt"
	"os"
	"sync/atomic"
)

// mainRuns tells the helpers that need [Main] whether the package has it.
var mainRuns atomic.Bool

// Main is the whole TestMain of a package: it runs a child main if this
// process is one (see [RegisterChild]), else the tests, then stops the shared
// servers, then runs the checks, and exits. The checks run only after passing
// tests, when nothing of this package is left running, so goleak.Find can be
// one of them. Main does not return.
func Main(m interface{ Run() int }, checks ...func() error) {
	os.Exit(runMain(m, checks))
}

func runMain(m interface{ Run() int }, checks []func() error) int {
	if name, ok := os.LookupEnv(childEnv); ok {
		return runChild(name)
	}
	mainRuns.Store(true)
	code := m.Run()
	mainRuns.Store(false)
	for _, stop := range []func() error{stopSharedRedis, stopSharedPostgres} {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "testserver:", err)
			code = max(code, 1)
		}
	}
	for _, check := range checks {
		if code != 0 {
			break
		}
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, "testserver: after the tests:", err)
			code = 1
		}
	}
	return code
}
