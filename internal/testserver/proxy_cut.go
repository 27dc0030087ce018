package testserver

import "slices"

// Cut is one planned break of one connection.
type Cut struct {
	left   int
	match  []Match
	before bool
	fired  chan struct{}
}

// Match chooses requests.
type Match func(Request) bool

// Named matches requests with one of these names (for Redis: upper case).
func Named(names ...string) Match {
	return func(r Request) bool { return slices.Contains(names, r.Name) }
}

// Except matches requests with none of these names.
func Except(names ...string) Match {
	return func(r Request) bool { return !slices.Contains(names, r.Name) }
}

// CutBefore plans a lost command: of the requests that arrive from now on and
// that all matches choose, the n-th (1 is the next) never reaches the server,
// and its connection is cut. Requests that came before it on the same
// connection are served and, as far as the client reads, answered.
func (p *Proxy) CutBefore(n int, matches ...Match) *Cut { return p.plan(n, true, matches) }

// CutAfter plans a lost reply: the n-th chosen request reaches the server, and
// the server has carried it out by the time the client sees its connection
// cut without a reply. Replies to earlier requests of the same pipeline may be
// lost with it. A server that takes more than two seconds is not waited for.
func (p *Proxy) CutAfter(n int, matches ...Match) *Cut { return p.plan(n, false, matches) }

func (p *Proxy) plan(n int, before bool, matches []Match) *Cut {
	p.tb.Helper()
	if n < 1 {
		p.tb.Fatalf("proxy: no request has number %d", n)
	}
	c := &Cut{left: n, match: matches, before: before, fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = append(p.cuts, c)
	return c
}

// Clear forgets all cuts that have not fired.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = nil
}

// Fired tells whether the cut's request has come. It is true before the client
// can see the cut.
func (c *Cut) Fired() bool {
	select {
	case <-c.fired:
		return true
	default:
		return false
	}
}

// Done is closed when Fired becomes true.
func (c *Cut) Done() <-chan struct{} { return c.fired }

// due counts the request if it is chosen, and tells whether it is the n-th.
func (c *Cut) due(req Request) bool {
	for _, match := range c.match {
		if !match(req) {
			return false
		}
	}
	c.left--
	return c.left == 0
}
