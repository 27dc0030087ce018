package backendtest

import (
	"testing"
	"time"
)

// What is dear for a while only is no violation; what stays dear is one.
func TestCheapAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes []time.Duration // the last one for ever
		time  time.Duration
		want  bool
	}{
		{"AtOnce", []time.Duration{10 * time.Millisecond}, patience, true},
		{"AfterAWhile", []time.Duration{30 * time.Millisecond, 25 * time.Millisecond, 9 * time.Millisecond}, patience, true},
		{"Never", []time.Duration{30 * time.Millisecond}, time.Millisecond, false},
	} {
		n := -1
		measure := func() time.Duration {
			n = min(n+1, len(c.takes)-1)
			return c.takes[n]
		}
		if _, got := cheapAgain(time.Millisecond, measure, time.Now().Add(c.time)); got != c.want {
			t.Errorf("%s: cheap %v, want %v", c.name, got, c.want)
		}
	}
}
