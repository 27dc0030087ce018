package faultsuite

import (
	"sync"
	"testing"
)

// subtest is a test with a name.
type subtest struct {
	name string
	run  func(*testing.T)
}

// atOnce is how many tests run at the same time, unless the store says. Most of the
// time they wait for leases, servers and processes, so it does not depend on the
// number of processors, as go test's own limit does.
const atOnce = 7

var slots chan struct{}

// together runs tests at the same time, and returns when all have ended. Tests may
// use it within each other: only those that run no others take a slot.
func together(t *testing.T, tests []subtest) {
	var wg sync.WaitGroup
	for _, test := range tests {
		wg.Go(func() {
			t.Run(test.name, test.run)
		})
	}
	wg.Wait()
}

// slotted takes a slot for a test.
func slotted(run func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		slots <- struct{}{}
		t.Cleanup(func() { <-slots })
		run(t)
	}
}
