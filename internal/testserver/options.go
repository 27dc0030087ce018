package testserver

import "time"

// Option changes how a private server is started.
type Option func(*config)

type config struct {
	args     []string
	aof      bool
	password string
	clock    bool
	offset   time.Duration
	programs []string
}

func newConfig(opts []Option) config {
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	return c
}

// AOF makes Redis write each command to disk before it answers, so that a
// killed and restarted server still has all that it acknowledged. Without it
// a restarted Redis is empty.
func AOF() Option { return func(c *config) { c.aof = true } }

// Args adds arguments to the server's command line, such as
// Args("--maxmemory", "8mb"). A password goes by [Password].
func Args(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// Password makes the server ask for a password. URL and Client have it.
func Password(password string) Option { return func(c *config) { c.password = password } }

// ClockOffset starts the server with a wall clock that is off by d from
// everybody else's, and lets its SetClock change that later. Zero is a right
// clock that can be changed. It needs Linux and a C compiler.
//
// Only the server's clock can be moved: a Go program reads the time without
// the C library, so a worker's can not.
func ClockOffset(d time.Duration) Option {
	return func(c *config) { c.clock, c.offset = true, d }
}

// Programs demands that these programs are beside the server's own, such as
// Programs("pgbench").
func Programs(names ...string) Option {
	return func(c *config) { c.programs = append(c.programs, names...) }
}
