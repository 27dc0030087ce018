package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives growing pauses between tries, each drawn evenly from the upper
// half of its step.
type backoff struct {
	min, max time.Duration
	step     time.Duration
}

func (b *backoff) next() time.Duration {
	b.step = min(max(2*b.step, b.min), b.max)
	return spread(b.step)
}

func (b *backoff) reset() { b.step = 0 }

// around draws evenly from d with a quarter to both sides.
func around(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
