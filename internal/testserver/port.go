package testserver

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports come from below the range that the system uses for outgoing
// connections (32768 and up on Linux). A port of that range can be taken by
// anybody's connection while its server is down, or a client that dials the
// dead server can even connect to itself; both keep a server from restarting.
const (
	firstPort = 12000
	lastPort  = 22767
	// busOffset is where Redis Cluster puts its second port by default.
	busOffset = 10000
)

// FreePort returns a loopback TCP port that nothing listens on, and that no
// other caller of this package gets, in this or another process, before the
// test ends. It stays unused by this package while its owner is down.
func FreePort(t testing.TB) int {
	t.Helper()
	r, err := reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.release)
	return r.port
}

// reservation keeps a port for this process. TCP has no way to hold a port
// that a server is to bind later, so the UDP port of the same number is held
// instead: it is free again by itself when the process ends.
type reservation struct {
	port int
	held []*net.UDPConn
}

// reserve takes a free port, and the one at each non-zero offset from it.
func reserve(offset int) (*reservation, error) {
	ports := lastPort - firstPort + 1
	first := rand.IntN(ports)
	for i := range ports {
		r := &reservation{port: firstPort + (first+i)%ports}
		if r.take(r.port) && (offset == 0 || r.take(r.port+offset)) {
			return r, nil
		}
		r.release()
	}
	return nil, errors.New("testserver: no free loopback port")
}

func (r *reservation) take(port int) bool {
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	r.held = append(r.held, udp)
	ln, err := net.Listen("tcp4", loopback(port))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

func (r *reservation) release() {
	for _, udp := range r.held {
		_ = udp.Close()
	}
	r.held = nil
}

func (r *reservation) addr() string { return loopback(r.port) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
