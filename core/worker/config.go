package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/rota-queue/rota/core"
)

// Backend is the part of a store that a worker uses. Every [core.Backend] has it.
type Backend interface {
	core.Leaser
	core.Waker
	// Purge removes what the queue's retention is over for; see
	// [core.Administrator].
	Purge(ctx context.Context, queue string, limit int) (int, error)
}

// Defaults of [Config]. The default of Concurrency is SlotsPerProc for each
// processor that Go may use (GOMAXPROCS).
const (
	SlotsPerProc          = 10
	DefaultLease          = 30 * time.Second
	DefaultPollInterval   = time.Second
	DefaultHighRatio      = 0.8
	DefaultStopTimeout    = 30 * time.Second
	DefaultReleaseTimeout = 5 * time.Second
)

// MaxConcurrency is the greatest number of slots of one worker.
const MaxConcurrency = 1_000_000

// Queue is a queue that a worker serves.
type Queue struct {
	Name string
	// Weight is the queue's chance to be asked first, in proportion to the sum of
	// the weights of all queues that may have work: 1 to 1000, 0 means 1. With
	// [Config.Strict] it has no effect.
	Weight int
}

// Middleware wraps a handler in another one.
type Middleware func(Handler) Handler

// Config says what a worker does. Queues and Handler must be set; every other
// zero value is a usable default. Durations that are documented with [core.None]
// or [core.Forever] take those, all others must not be negative.
type Config struct {
	// Queues to serve; at least one, none twice.
	Queues []Queue
	// Strict asks the queues in the order of Queues: one further down gets only
	// the slots that those before it left free. Otherwise each round of claims
	// asks them in a random order, drawn by their weights.
	Strict bool
	// Concurrency is the number of slots: how many handlers run at once. 0 means
	// SlotsPerProc times GOMAXPROCS; at most MaxConcurrency.
	Concurrency int
	// Prefetch is how many jobs at most are claimed beyond the free slots, while
	// handlers take less than a millisecond on average: without that, slots stand
	// empty during each claim. Their leases are held and extended like others. One
	// that has waited 20 ms for a slot is given back without an attempt spent, and
	// its group waits for its next turn. 0
	// means eight times Concurrency, but 32 to 256; core.None none; at most
	// core.MaxClaimBatch. With Strict and several queues there is none.
	Prefetch int

	// Lease is how long the store waits for a sign of life before it gives a job
	// to another worker. 0 means DefaultLease; at least core.MinLease.
	Lease time.Duration
	// Heartbeat is the time between two extensions of all held leases. 0 means a
	// third of Lease; at most half of it.
	Heartbeat time.Duration
	// MaxHandling ends the heartbeats for a job that long after its handler
	// started. Then its lease runs out, at most one Lease later, and the handler's
	// context ends with cause [core.ErrLeaseLost]. 0 means never.
	MaxHandling time.Duration

	// PollInterval is how often an empty queue is asked without a hint, spread by
	// a quarter to both sides. 0 means DefaultPollInterval; at least a
	// millisecond. Hints and what the store says about its next due time make
	// the wait shorter, so a long interval costs little but what a lost hint costs.
	PollInterval time.Duration
	// HighRatio is the share (above 0 to 1) of claims that serve groups of priority
	// HighThreshold (1 to 4) and above first, and others with the slots which that
	// left free. The other claims serve the groups that have waited longest, so
	// that no group starves whatever its priority. HighRatio 0 means
	// DefaultHighRatio, a negative one that priorities count for nothing;
	// HighThreshold 0 means 1.
	HighRatio     float64
	HighThreshold int

	// Handler does the work; see also [Mux] and [Typed].
	Handler Handler
	// Middleware wraps the handler; the first is the outermost.
	Middleware []Middleware
	// Retry says how long a failed job waits. Nil means
	// Exponential(DefaultRetryMin, DefaultRetryMax).
	Retry RetryPolicy
	// Timeout bounds one run of the handler of a job that brings no timeout of its
	// own. 0 means no bound.
	Timeout time.Duration

	// StopTimeout is how long Stop lets running handlers go on before their
	// contexts end. 0 means DefaultStopTimeout, core.None not at all,
	// core.Forever without a bound.
	StopTimeout time.Duration
	// ReleaseTimeout is how long Stop waits after that for handlers to return and
	// for their jobs to be given back. 0 means DefaultReleaseTimeout, core.None
	// not at all, core.Forever without a bound.
	ReleaseTimeout time.Duration

	// Owner is the worker's name, for people. Empty means host:pid:random.
	Owner string
	// Logger; nil means slog.Default().
	Logger *slog.Logger
	// Observer is told what happens, for metrics.
	Observer Observer
}

// withDefaults checks the configuration and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	c.Queues = append([]Queue(nil), c.Queues...)
	c.Concurrency = orInt(c.Concurrency, SlotsPerProc*runtime.GOMAXPROCS(0))
	c.Prefetch = orInt(c.Prefetch, min(max(8*c.Concurrency, leastPrefetch), mostPrefetch))
	c.Lease = orDuration(c.Lease, DefaultLease)
	c.Heartbeat = orDuration(c.Heartbeat, c.Lease/3)
	if c.HighRatio == 0 {
		c.HighRatio = DefaultHighRatio
	}
	c.HighThreshold = orInt(c.HighThreshold, 1)
	c.PollInterval = orDuration(c.PollInterval, DefaultPollInterval)
	c.StopTimeout = orDuration(c.StopTimeout, DefaultStopTimeout)
	c.ReleaseTimeout = orDuration(c.ReleaseTimeout, DefaultReleaseTimeout)
	if c.Retry == nil {
		c.Retry = Exponential(DefaultRetryMin, DefaultRetryMax)
	}
	if c.Owner == "" {
		c.Owner = defaultOwner()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, check := range []func() error{c.checkHandler, c.checkQueues, c.checkShares, c.checkTimes} {
		if err := check(); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

func orInt(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

func orDuration(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	host = host[:min(len(host), 200)]
	return fmt.Sprintf("%s:%d:%08x", host, os.Getpid(), rand.Uint32())
}

func (c *Config) checkHandler() error {
	if isNil(c.Handler) {
		return core.Invalid("handler", nil, "is missing")
	}
	for i, m := range c.Middleware {
		if m == nil {
			return core.Invalid("middleware", i, "is nil")
		}
	}
	return nil
}

func (c *Config) checkQueues() error {
	if len(c.Queues) == 0 {
		return core.Invalid("queues", nil, "are missing")
	}
	seen := make(map[string]bool, len(c.Queues))
	for i := range c.Queues {
		q := &c.Queues[i]
		q.Weight = orInt(q.Weight, 1)
		claim := core.ClaimRequest{Queue: q.Name, Max: 1, Lease: c.Lease, Owner: c.Owner}
		if err := claim.Validate(); err != nil {
			return err
		}
		if q.Weight < 1 || q.Weight > 1000 {
			return core.Invalid("weight", q.Weight, "is not between 1 and 1000")
		}
		if seen[q.Name] {
			return core.Invalid("queue", q.Name, "is listed twice")
		}
		seen[q.Name] = true
	}
	return nil
}

func (c *Config) checkShares() error {
	switch {
	case c.Concurrency < 1 || c.Concurrency > MaxConcurrency:
		return core.Invalid("concurrency", c.Concurrency, fmt.Sprintf("is not between 1 and %d", MaxConcurrency))
	case c.Prefetch > core.MaxClaimBatch || c.Prefetch < 0 && c.Prefetch != int(core.None):
		return core.Invalid("prefetch", c.Prefetch, fmt.Sprintf("is not between 1 and %d", core.MaxClaimBatch))
	case !(c.HighRatio <= 1): // also false for NaN
		return core.Invalid("high ratio", c.HighRatio, "is not 1 or less")
	case c.HighThreshold < 1 || c.HighThreshold > core.MaxPriority:
		return core.Invalid("high threshold", c.HighThreshold, fmt.Sprintf("is not between 1 and %d", core.MaxPriority))
	}
	return nil
}

func (c *Config) checkTimes() error {
	switch {
	case c.Heartbeat < time.Millisecond:
		return core.Invalid("heartbeat", c.Heartbeat, "is shorter than a millisecond")
	case c.Heartbeat > c.Lease/2:
		return core.Invalid("heartbeat", c.Heartbeat, fmt.Sprintf("is longer than half of the lease of %s", c.Lease))
	case c.PollInterval < time.Millisecond:
		return core.Invalid("poll interval", c.PollInterval, "is shorter than a millisecond")
	case c.PollInterval > core.MaxDelay:
		return core.Invalid("poll interval", c.PollInterval, "is longer than 100 years")
	case c.MaxHandling < 0:
		return core.Invalid("max handling", c.MaxHandling, "is negative")
	case c.Timeout < 0:
		return core.Invalid("timeout", c.Timeout, "is negative")
	case c.StopTimeout < 0 && c.StopTimeout != core.None:
		return core.Invalid("stop timeout", c.StopTimeout, "is negative")
	case c.ReleaseTimeout < 0 && c.ReleaseTimeout != core.None:
		return core.Invalid("release timeout", c.ReleaseTimeout, "is negative")
	}
	return nil
}
