package worker

import (
	"math/rand/v2"
	"time"

	"github.com/rota-queue/rota/core"
)

// RetryPolicy says how long a job that failed with err waits for its next
// attempt. job.Attempt is the one that failed, 1 for the first. What is negative
// counts as zero. A policy is called by many goroutines at once and must not change
// the job. When it panics, that is logged and the job waits as under the default
// policy.
//
// How many attempts there are is the job's own matter ([core.NewJob.MaxAttempts]);
// an error made by [DeadLetter] ends them early.
type RetryPolicy func(job *core.Job, err error) time.Duration

// Bounds of the default policy.
const (
	DefaultRetryMin = time.Second
	DefaultRetryMax = time.Hour
)

// Exponential doubles the delay with every attempt, from min up to max. The
// delay is drawn evenly from its upper half, so that jobs that failed together
// do not come back together.
func Exponential(min, max time.Duration) RetryPolicy {
	return func(job *core.Job, _ error) time.Duration {
		d := min
		for n := 1; n < job.Attempt && d < max; n++ {
			d = 2 * d
			if d <= 0 { // zero, or too long to count
				break
			}
		}
		if d > max || d < min {
			d = max
		}
		return spread(d)
	}
}

// spread draws evenly from the upper half of d.
func spread(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d - rand.N(d/2+1)
}

// Constant waits for d after every attempt.
func Constant(d time.Duration) RetryPolicy {
	return func(*core.Job, error) time.Duration { return d }
}

// Steps waits for the first delay after the first attempt and so on; the last one
// stands for all that follow. Without delays it does not wait.
func Steps(delays ...time.Duration) RetryPolicy {
	delays = append([]time.Duration(nil), delays...)
	return func(job *core.Job, _ error) time.Duration {
		if len(delays) == 0 {
			return 0
		}
		return delays[min(max(job.Attempt, 1), len(delays))-1]
	}
}
