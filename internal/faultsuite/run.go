package faultsuite

import (
	"cmp"
	"testing"
	"time"
)

// Run runs the suite. Tests that measure how long something takes run first and
// alone, all others several at a time.
func Run(t *testing.T, store Store) {
	slots = make(chan struct{}, cmp.Or(store.AtOnce, atOnce))
	t.Run("P5_RecoveryTime", func(t *testing.T) { testRecoveryTime(t, store) })
	t.Run("P10_SlowSettle", func(t *testing.T) { testSlowSettle(t, store) })
	var tests []subtest
	add := func(name string, test func(*testing.T, Store)) {
		tests = append(tests, subtest{name, func(t *testing.T) { test(t, store) }})
	}
	add("P4_ProcessesKilled", testProcessesKilled)
	add("P4_ServerKilled", testServerKilled)
	add("P3_ServerFrozen", testServerFrozen)
	add("P3_ZombieWorker", testZombieWorker)
	add("P5_PoisonJob", testPoisonJob)
	add("P4_ConnectionCut", testConnectionCut)
	add("P4_ConnectionsBreak", testConnectionsBreak)
	if store.StartClock != nil {
		add("P9_ClockOff", testClockOff)
		add("P9_ClockForward", testClockForward)
		add("P9_ClockBack", testClockBack)
	}
	together(t, tests)
}

// The usual processes of a storm.
var (
	mixedWorker  = workerSpec{Concurrency: 8, Lease: 300 * time.Millisecond, MaxHandling: 500 * time.Millisecond, Handler: "mixed"}
	stormBatch   = 4
	stormPause   = 40 * time.Millisecond
	keptPublish  = publisherSpec{Groups: groupNames(false), Batch: stormBatch, Pause: stormPause, Insist: true}
	quickPublish = publisherSpec{Groups: groupNames(false), Batch: stormBatch, Pause: stormPause}
)

// stormPublish is what the publishers of a storm do: they can insist only where
// the store knows the ids of what has completed.
func stormPublish(kept bool) publisherSpec {
	if kept {
		return keptPublish
	}
	return quickPublish
}
