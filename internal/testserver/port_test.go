package testserver

import (
	"net"
	"sync"
	"testing"
)

func TestFreePortIsFreeAndGivenOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[int]bool{}
	for range 50 {
		wg.Go(func() {
			port := FreePort(t)
			ln, err := net.Listen("tcp", loopback(port))
			if err != nil {
				t.Error(err)
				return
			}
			_ = ln.Close()
			mu.Lock()
			defer mu.Unlock()
			if seen[port] {
				t.Errorf("port %d was given twice", port)
			}
			seen[port] = true
		})
	}
	wg.Wait()
}

func TestReservationSkipsTakenPorts(t *testing.T) {
	t.Parallel()
	r, err := reserve(busOffset)
	if err != nil {
		t.Fatal(err)
	}
	defer r.release()
	other := &reservation{}
	defer other.release()
	if other.take(r.port) || other.take(r.port+busOffset) {
		t.Error("a reserved port was taken again")
	}
	free, err := reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	port := free.port
	free.release()
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if other.take(port) {
		t.Error("a port that somebody listens on was taken")
	}
}
