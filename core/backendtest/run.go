package backendtest

import (
	"testing"

	"github.com/rota-queue/rota/core"
)

// Harness tells the suite how to reach the store under test.
type Harness struct {
	// Open gives a new handle on the one store under test: each call another
	// client of it, as another process would have. The suite closes the handle.
	// Open fails the test itself when it can not give one.
	Open func(t testing.TB) core.Backend
	// Limits are the limits the handles are opened with.
	Limits core.Limits
	// Slow makes backlogs and storms a tenth of their size, for stores on which
	// an operation takes milliseconds.
	Slow bool
}

// scale is n, or a tenth of it on a slow store.
func (h Harness) scale(n int) int {
	if h.Slow {
		return max(n/10, 1)
	}
	return n
}

// A test is one thing that a backend must do, in a queue of its own.
type test struct {
	name string
	run  func(f *fixture)
}

// suite is everything that Run runs: the promises, then what has no number.
var suite = []struct {
	name  string
	tests []test
}{
	{"P1_Order", orderTests},
	{"P1_Places", placeTests},
	{"P1_Schedules", scheduleTests},
	{"P2_Exclusive", exclusiveTests},
	{"P3_Fenced", fenceTests},
	{"P3_Stale", staleTests},
	{"P4_NothingLost", keptTests},
	{"P5_RecoveryInClaim", recoveryTests},
	{"P6_Turns", turnTests},
	{"P6_HeadStart", headStartTests},
	{"P6_HeadChanges", headChangeTests},
	{"P7_Priority", priorityTests},
	{"P8_HiddenByNothing", hiddenTests},
	{"P9_StoreClock", clockTests},
	{"P10_Cost", costTests},
	{"P11_QuietPublish", quietTests},
	{"P12_Dedup", dedupTests},
	{"P12_Conflict", conflictTests},
	{"P12_Batch", batchTests},
	{"Publish", publishTests},
	{"Settle", settleTests},
	{"Retention", retentionTests},
	{"Patch", patchTests},
	{"Pause", pauseTests},
	{"Hold", holdTests},
	{"Move", moveTests},
	{"MoveByState", moveManyTests},
	{"Queues", queueTests},
	{"Jobs", listingTests},
	{"Groups", groupTests},
	{"Events", eventTests},
	{"Records", recordTests},
	{"Topics", topicTests},
	{"Wake", wakeTests},
	{"Wait", waitTests},
	{"Next", nextTests},
	{"Invalid", invalidTests},
	{"Closed", closedTests},
	{"Names", nameTests},
}

// Run runs the conformance suite: one subtest for each thing a backend has to
// do, all of them in parallel.
func Run(t *testing.T, h Harness) {
	for _, part := range suite {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range part.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(newFixture(t, h))
				})
			}
		})
	}
}
