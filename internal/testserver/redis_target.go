package testserver

import (
	"net/url"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisTarget is where a Redis is, whoever runs it.
type redisTarget struct {
	addr, url string
}

func newRedisTarget(addr, password string) redisTarget {
	u := url.URL{Scheme: "redis", Host: addr, Path: "/0"}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return redisTarget{addr: addr, url: u.String()}
}

// Addr returns host:port.
func (t redisTarget) Addr() string { return t.addr }

// URL returns the redis:// URL, with password and database.
func (t redisTarget) URL() string { return t.url }

// Client returns a client that is closed when the test ends. It sends nothing
// of its own accord but the RESP handshake, and does not repeat commands.
func (t redisTarget) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	client := redis.NewClient(t.options())
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

func (t redisTarget) options() *redis.Options {
	opts, err := redis.ParseURL(t.url)
	if err != nil {
		panic("testserver: own URL: " + err.Error()) // checked where it was made
	}
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return opts
}
