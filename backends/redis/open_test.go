package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// wantOpen fails unless Open refuses the URL with an error of the kind that has
// the text in it, and is one sentence on one line.
func wantOpen(t *testing.T, url string, kind error, text string) {
	t.Helper()
	b, err := Open(t.Context(), url, Options{})
	if err == nil {
		_ = b.Close()
		t.Fatalf("Open(%q) succeeded", url)
	}
	wantError(t, err, kind, text)
}

func wantError(t *testing.T, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	if !strings.Contains(err.Error(), text) {
		t.Fatalf("error %q lacks %q", err, text)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %q has several lines", err)
	}
}

func TestOpenPassword(t *testing.T) {
	server := testserver.Redis(t, testserver.Password("secret"))
	open(t, server.URL(), Options{})
	wantOpen(t, "redis://"+server.Addr(), core.ErrMisconfigured, "none was given")
	wantOpen(t, "redis://:wrong@"+server.Addr(), core.ErrMisconfigured, "password is wrong")
}

func TestOpenReplica(t *testing.T) {
	primary := testserver.Redis(t)
	replica := testserver.RedisReplica(t, primary)
	wantOpen(t, replica.URL(), core.ErrMisconfigured, "replica of "+strings.Replace(primary.Addr(), "localhost", "127.0.0.1", 1))
}

func TestOpenNobodyThere(t *testing.T) {
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	addr := listener.Addr().String()
	_ = listener.Close()
	wantOpen(t, "redis://"+addr, core.ErrUnavailable, "connection refused")
}

func TestOpenBadURL(t *testing.T) {
	for _, url := range []string{"", "http://host", "redis://host:1/x", "redis://a:pa%ss@host", "redis+cluster://host?nonsense=1"} {
		_, err := Open(t.Context(), url, Options{})
		if !errors.Is(err, core.ErrInvalid) {
			t.Errorf("Open(%q): got %v, want ErrInvalid", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "pa%ss") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}

func TestOpenBadOptions(t *testing.T) {
	url := testserver.SharedRedis(t).URL()
	for _, opts := range []Options{{Prefix: "a{b"}, {Prefix: strings.Repeat("x", 65)}, {WaitReplicas: -1}, {WaitTimeout: time.Microsecond}} {
		if _, err := Open(t.Context(), url, opts); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("Open with %+v: got %v, want ErrInvalid", opts, err)
		}
	}
}

func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{
		"5.0.14": true, "6.0.16": true, "6.2.0": false, "6.2.14": false, "7.0.15": false, "8.0": false, "255.255.255": false, "": false, "x.y": false,
	} {
		if tooOld(version) != want {
			t.Errorf("version %q too old: %v", version, !want)
		}
	}
	b := &Backend{opts: Options{}.withDefaults()}
	wantError(t, b.judge([]facts{{"redis_version": "6.0.16"}}), core.ErrMisconfigured, "at least 6.2 is needed")
}

func TestOpenWarnsOfEviction(t *testing.T) {
	var log logged
	server := testserver.Redis(t, testserver.Args("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"))
	open(t, server.URL(), Options{Logger: log.logger()})
	if text := log.String(); !strings.Contains(text, "level=WARN") || !strings.Contains(text, "allkeys-lru") {
		t.Errorf("no warning of the eviction policy, but %q", text)
	}
	log.buf.Reset()
	open(t, testserver.Redis(t).URL(), Options{Logger: log.logger()})
	if text := log.String(); text != "" {
		t.Errorf("a warning of a server that is all right: %q", text)
	}
}

// A user who may not ask INFO can work; only the checks are left out.
func TestOpenWithoutInfo(t *testing.T) {
	server := testserver.Redis(t)
	ctx := context.Background()
	acl := []any{"acl", "setuser", "app", "on", ">pw", "~rota:*", "&rota:*", "+@all", "-info", "-config"}
	if err := server.Client(t).Do(ctx, acl...).Err(); err != nil {
		t.Fatal(err)
	}
	var log logged
	b := open(t, "redis://app:pw@"+server.Addr(), Options{Logger: log.logger()})
	if !strings.Contains(log.String(), "may not ask INFO") {
		t.Errorf("no warning, but %q", log.String())
	}
	put(t, b, core.NewJob{Queue: "q", Group: "g"})
	settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Complete})
	must[core.Record](t)(b.PutRecord(ctx, core.PutRecord{Space: "s", Key: "k"}))
	must[[]string](t)(b.Queues(ctx))
}

// The rights that docs/redis.md asks for are enough, and a lack of one is told.
func TestRights(t *testing.T) {
	server := testserver.Redis(t)
	ctx := context.Background()
	user := func(name string, rights ...any) *Backend {
		acl := append([]any{"acl", "setuser", name, "on", ">pw", "resetkeys", "~rota:*", "resetchannels", "&rota:*"}, rights...)
		if err := server.Client(t).Do(ctx, acl...).Err(); err != nil {
			t.Fatal(err)
		}
		return open(t, fmt.Sprintf("redis://%s:pw@%s", name, server.Addr()), Options{})
	}
	docRights := []any{"-@all", "+@read", "+@write", "+@pubsub", "+@scripting", "+@connection", "+info", "+time", "-@dangerous", "+info"}
	b := user("app", docRights...)
	wakes := must[<-chan core.Wake](t)(b.Wakes(t.Context(), "q"))
	if res := must[core.ClaimResult](t)(b.Claim(ctx, core.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute})); len(res.Leases) > 0 {
		t.Fatal("a lease out of nothing")
	}
	put(t, b, core.NewJob{Queue: "q", Group: "g"})
	<-wakes
	settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Retry, Error: "x"})
	if err := b.DeleteQueue(ctx, "q", true); err != nil {
		t.Fatal(err)
	}
	b = user("reader", append(docRights, "-@write")...)
	_, err := core.Publish(ctx, b, core.NewJob{Queue: "q"})
	wantError(t, err, core.ErrMisconfigured, "lacks a permission")
}

func TestNewRefusesNil(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		_, err := New(t.Context(), client, Options{})
		wantError(t, err, core.ErrInvalid, "client is nil")
	}
}

func TestNewRefusesRing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	_, err := New(t.Context(), ring, Options{})
	wantError(t, err, core.ErrMisconfigured, "Ring")
}

// The caller's client stays open, and a lone client on a cluster is refused by New
// and made a cluster client by Open.
func TestOpenCluster(t *testing.T) {
	cluster := testserver.RedisCluster(t)
	lone := cluster.Nodes[0].Client(t)
	_, err := New(t.Context(), lone, Options{})
	wantError(t, err, core.ErrMisconfigured, "not a cluster client")
	if err := lone.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the caller's client was closed: %v", err)
	}
	addrs := cluster.Addrs()
	for _, url := range []string{
		"redis://" + addrs[1], "redis+cluster://" + addrs[2], fmt.Sprintf("redis://%s?addr=%s", addrs[0], addrs[1]),
	} {
		b := open(t, url, Options{})
		for i := range 20 {
			put(t, b, core.NewJob{Queue: fmt.Sprint("q", i), Group: "g"})
		}
		for i := range 20 {
			settle(t, b, take(t, b, fmt.Sprint("q", i)), core.Outcome{Action: core.Complete})
		}
	}
}

func TestUnixSocket(t *testing.T) {
	socket := t.TempDir() + "/redis.sock"
	testserver.Redis(t, testserver.Args("--unixsocket", socket))
	b := open(t, "unix://"+socket, Options{})
	put(t, b, core.NewJob{Queue: "q"})
	take(t, b, "q")
}

// Two prefixes on one server know nothing of each other.
func TestPrefix(t *testing.T) {
	server := testserver.Redis(t)
	one, two := open(t, server.URL(), Options{}), open(t, server.URL(), Options{Prefix: "other"})
	put(t, one, core.NewJob{Queue: "q"})
	if queues := must[[]string](t)(two.Queues(t.Context())); len(queues) > 0 {
		t.Errorf("the other prefix has queues %q", queues)
	}
	if _, err := two.QueueInfo(t.Context(), "q"); !errors.Is(err, core.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}
