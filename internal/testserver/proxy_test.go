package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// behind returns a proxy, a client through it and one past it.
func behind(t *testing.T) (p *Proxy, through, past *redis.Client) {
	t.Helper()
	s := Redis(t)
	p = NewProxy(t, s.Addr(), RESP)
	return p, newRedisTarget(p.Addr(), "").Client(t), s.Client(t)
}

func TestProxyLostReply(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, through, past := behind(t)
	for i := range int64(50) {
		cut := p.CutAfter(1, Named("INCR"))
		if err := through.Incr(ctx, "n").Err(); err == nil {
			t.Fatal("the reply was not lost")
		}
		if !cut.Fired() {
			t.Fatal("the connection broke without the cut")
		}
		// Done by the time the client knows, so at once is late enough.
		if n, err := past.Get(ctx, "n").Int64(); err != nil || n != i+1 {
			t.Fatalf("the server has %d, %v, want %d", n, err, i+1)
		}
	}
}

func TestProxyLostCommand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, through, past := behind(t)
	cut := p.CutBefore(3, Except("HELLO", "CLIENT"))
	for i := range 2 {
		if err := through.Incr(ctx, "n").Err(); err != nil || cut.Fired() {
			t.Fatalf("command %d: %v, cut %v", i, err, cut.Fired())
		}
	}
	if err := through.Incr(ctx, "n").Err(); err == nil || !cut.Fired() {
		t.Fatalf("command 3: %v, cut %v", err, cut.Fired())
	}
	<-cut.Done()
	if n, err := past.Get(ctx, "n").Int(); err != nil || n != 2 {
		t.Errorf("the server has %d, %v", n, err)
	}
	if err := through.Incr(ctx, "n").Err(); err != nil {
		t.Errorf("after the cut: %v", err)
	}
	if got := p.Count("INCR"); got != 4 {
		t.Errorf("%d INCR counted", got)
	}
}

func TestProxyCountsAndCutsInsideAPipeline(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, _, past := behind(t)
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cut := p.CutBefore(4)
	if _, err := io.WriteString(conn, strings.Repeat("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n", 6)); err != nil {
		t.Fatal(err)
	}
	replies, err := io.ReadAll(bufio.NewReader(conn))
	if string(replies) != ":1\r\n:2\r\n:3\r\n" {
		t.Errorf("replies %q, %v", replies, err)
	}
	if n, err := past.Get(ctx, "n").Int(); err != nil || n != 3 || !cut.Fired() {
		t.Errorf("the server has %d, %v", n, err)
	}
	if got := p.Requests(); got != 4 {
		t.Errorf("%d requests counted", got)
	}
	if got := p.Connections(); got != 1 {
		t.Errorf("%d connections counted", got)
	}
}

func TestProxyCutsEachFireOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, through, _ := behind(t)
	first, second, never := p.CutBefore(1), p.CutAfter(1, Named("INCR")), p.CutBefore(1, Named("DECR"))
	_ = through.Ping(ctx).Err() // its HELLO meets the first cut
	if !first.Fired() || second.Fired() {
		t.Errorf("fired: %v, %v", first.Fired(), second.Fired())
	}
	if err := through.Incr(ctx, "n").Err(); err == nil || !second.Fired() {
		t.Errorf("second: %v, fired %v", err, second.Fired())
	}
	p.Clear()
	if err := through.Decr(ctx, "n").Err(); err != nil || never.Fired() {
		t.Errorf("cleared: %v, fired %v", err, never.Fired())
	}
}

func TestProxyRefuseCutResume(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, through, _ := behind(t)
	if err := through.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	p.Refuse()
	if err := refuses(p.Addr()); err != nil {
		t.Error(err)
	}
	if err := through.Ping(ctx).Err(); err != nil {
		t.Errorf("the open connection: %v", err)
	}
	p.CutAll()
	if err := through.Ping(ctx).Err(); err == nil {
		t.Error("the cut connection answered")
	}
	p.Resume()
	if err := through.Ping(ctx).Err(); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func TestProxyDelay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, through, past := behind(t)
	if err := through.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	p.Delay(80 * time.Millisecond)
	began := time.Now()
	if err := through.Ping(ctx).Err(); err != nil || time.Since(began) < 80*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	// A held command goes down with its connection.
	p.Delay(time.Hour)
	failed := make(chan error)
	go func() { failed <- through.Incr(ctx, "n").Err() }()
	eventually(t, func() error {
		if p.Count("INCR") == 0 {
			return errors.New("not there yet")
		}
		return nil
	})
	p.CutAll()
	if err := <-failed; err == nil {
		t.Error("the held command was answered")
	}
	p.Resume()
	if err := through.Ping(ctx).Err(); err != nil {
		t.Error(err)
	}
	if n, err := past.Exists(ctx, "n").Result(); err != nil || n != 0 {
		t.Errorf("the held command was carried out: %d, %v", n, err)
	}
}

func TestProxyCutsABlockedConnection(t *testing.T) {
	t.Parallel()
	p, through, _ := behind(t)
	cut := p.CutAfter(1, Named("BLPOP"))
	if err := through.BLPop(context.Background(), 0, "nothing").Err(); err == nil || !cut.Fired() {
		t.Errorf("%v, fired %v", err, cut.Fired())
	}
}

func TestProxyWithServerDown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := Redis(t, AOF())
	p := NewProxy(t, s.Addr(), RESP)
	client := newRedisTarget(p.Addr(), "").Client(t)
	if err := client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for i := range 2 {
		if err := client.Get(ctx, "k").Err(); err == nil {
			t.Errorf("try %d: a dead server answered", i)
		}
	}
	s.Restart()
	if v, err := client.Get(ctx, "k").Result(); err != nil || v != "v" {
		t.Errorf("after the restart: %q, %v", v, err)
	}
}

func TestProxyReportsABrokenClient(t *testing.T) {
	t.Parallel()
	s := Redis(t)
	said := record(t, func(tb testing.TB) {
		p := NewProxy(tb, s.Addr(), RESP)
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "*1\r\nnonsense\r\n")
		_, _ = io.ReadAll(conn)
	})
	if len(said) != 1 || !strings.Contains(said[0], "broke the protocol") {
		t.Errorf("reported %q", said)
	}
}

func TestProxyUnderManyClients(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p, _, past := behind(t)
	const clients, each = 8, 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := 0
	for i := range clients {
		wg.Go(func() {
			client := newRedisTarget(p.Addr(), "").Client(t)
			for range each {
				if err := client.Incr(ctx, fmt.Sprint("n", i)).Err(); err == nil {
					mu.Lock()
					acked++
					mu.Unlock()
				}
			}
		})
	}
	for range 20 {
		<-p.CutAfter(7, Named("INCR")).Done()
	}
	wg.Wait()
	done := 0
	for i := range clients {
		n, err := past.Get(ctx, fmt.Sprint("n", i)).Int()
		if err != nil {
			t.Error(err)
		}
		done += n
	}
	// Each cut lost one reply of a command that was done, and nothing else.
	if done != clients*each || acked != done-20 {
		t.Errorf("%d sent, %d done, %d acknowledged", clients*each, done, acked)
	}
}
