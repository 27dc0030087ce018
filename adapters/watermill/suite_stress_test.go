//go:build stress

package rotawatermill_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

// TestSuiteStress runs the suite STRESS_TEST_COUNT times at once (10 without).
func TestSuiteStress(t *testing.T) { runSuite(t, tests.TestPubSubStressTest) }
