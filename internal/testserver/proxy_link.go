package testserver

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// drainPatience bounds the wait for a server to finish what was sent to it
// before a cut, in case it is frozen.
const drainPatience = 2 * time.Second

// link is one client's connection through a proxy.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn

	// mute says that the client is to get nothing more.
	mute    atomic.Bool
	drained chan struct{} // closed when the server has closed its side

	closing sync.Once
	closed  chan struct{}
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	return &link{
		proxy: p, client: client, server: server,
		drained: make(chan struct{}), closed: make(chan struct{}),
	}
}

// close breaks the connection on both sides.
func (l *link) close() {
	l.closing.Do(func() {
		close(l.closed)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// reset closes a connection so that the peer sees an error, not an end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// run serves the connection and returns when both directions have ended.
func (l *link) run() {
	go l.replies()
	l.forward()
	l.close()
	<-l.drained
}

// forward passes the client's requests on, one by one.
func (l *link) forward() {
	r := bufio.NewReaderSize(l.client, 64<<10)
	split := l.proxy.split()
	for {
		req, err := split.Next(r)
		if err != nil {
			l.proxy.report(err)
			l.drain() // what the client sent before it went is still carried out
			return
		}
		cut, delay := l.proxy.admit(req)
		if delay > 0 && !l.sleep(delay) {
			return
		}
		if cut != nil && cut.before {
			l.drain()
			return
		}
		if cut != nil {
			l.mute.Store(true)
		}
		if _, err := l.server.Write(req.Raw); err != nil {
			return
		}
		if cut != nil {
			l.drain()
			return
		}
	}
}

// drain waits until the server has carried out all that was forwarded. It
// ends the requests' side of the connection: a server reads up to that end,
// so when it closes in turn, it has done the rest.
func (l *link) drain() {
	_ = l.server.CloseWrite()
	patience := time.NewTimer(drainPatience)
	defer patience.Stop()
	select {
	case <-l.drained:
	case <-l.closed:
	case <-patience.C:
	}
}

// sleep tells whether the connection is still open afterwards.
func (l *link) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// replies passes on what the server says, and reads on when the client is not
// to get it any more or is gone.
func (l *link) replies() {
	defer close(l.drained)
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 && !l.mute.Load() {
			if _, err := l.client.Write(buf[:n]); err != nil {
				l.mute.Store(true)
			}
		}
		if err != nil {
			l.close()
			return
		}
	}
}
