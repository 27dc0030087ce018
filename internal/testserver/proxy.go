package testserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between clients and a server and breaks their connections at
// chosen requests. It forwards everything unchanged until told otherwise. Its
// methods may be called from any goroutine.
type Proxy struct {
	tb     testing.TB
	target string
	split  func() Splitter
	port   *reservation
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	cuts     []*Cut
	delay    time.Duration
	requests int
	byName   map[string]int
	accepted int
	problem  error
}

// NewProxy starts a proxy before the server at target (host:port) that lives
// until the test ends. split makes the splitter of one connection; [RESP] is
// that of Redis. A client that breaks the protocol fails the test.
func NewProxy(t testing.TB, target string, split func() Splitter) *Proxy {
	t.Helper()
	port, err := reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		tb: t, target: target, split: split, port: port,
		links: map[*link]struct{}{}, byName: map[string]int{},
	}
	t.Cleanup(p.close)
	p.Resume()
	return p
}

// Addr returns the address that clients dial instead of the server's.
func (p *Proxy) Addr() string { return p.port.addr() }

// Refuse makes new connections be refused. Open ones go on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopListening()
}

func (p *Proxy) stopListening() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Resume ends Refuse and Delay. It does not forget planned cuts.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = 0
	if p.closed || p.listener != nil {
		return
	}
	listener, err := p.listen()
	if err != nil {
		p.tb.Errorf("proxy: %v", err)
		return
	}
	p.listener = listener
	p.wg.Add(1)
	go p.accept(listener)
}

// listen keeps trying for a moment: a foreign program can have the port.
func (p *Proxy) listen() (net.Listener, error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		listener, err := net.Listen("tcp4", p.Addr())
		if err == nil || time.Now().After(deadline) {
			return listener, err
		}
		time.Sleep(pollInterval)
	}
}

// CutAll breaks all open connections at once, with whatever is under way on
// them. New ones are welcome unless Refuse was called.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Delay holds each request for d before it is forwarded, one after the other
// on each connection. A request that is held already is let go by CutAll only.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Requests returns how many requests have arrived from clients, those that
// were cut included. Pipelined requests count one by one.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Count returns how many requests with one of these names have arrived.
func (p *Proxy) Count(names ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, name := range names {
		n += p.byName[name]
	}
	return n
}

// Connections returns how many connections were accepted.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.wg.Done()
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed by Refuse or close
		}
		p.mu.Lock()
		if p.closed || p.listener != listener {
			_ = client.Close()
		} else {
			p.accepted++
			p.wg.Add(1)
			go p.serve(client.(*net.TCPConn))
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	defer p.wg.Done()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		reset(client) // the nearest thing to the refusal that a client would see
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	p.mu.Lock()
	if p.closed {
		l.close()
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// admit counts a request and says what is to happen to it.
func (p *Proxy) admit(req Request) (cut *Cut, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.byName[req.Name]++
	kept := p.cuts[:0]
	for _, c := range p.cuts {
		switch {
		case !c.due(req):
			kept = append(kept, c)
		case cut == nil:
			cut = c
		default:
			// One request can be cut once; this one is for the next.
			c.left = 1
			kept = append(kept, c)
		}
	}
	clear(p.cuts[len(kept):])
	p.cuts = kept
	if cut != nil {
		close(cut.fired)
	}
	return cut, p.delay
}

// report keeps the first sign of a broken protocol for the test's end.
func (p *Proxy) report(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	if opErr := (*net.OpError)(nil); errors.As(err, &opErr) {
		return // a connection that ended, not one that said something wrong
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem == nil {
		p.problem = err
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.port.release()
	if p.problem != nil {
		p.tb.Errorf("proxy before %s: %v", p.target, fmt.Errorf("client broke the protocol: %w", p.problem))
	}
}
