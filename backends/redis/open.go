package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/rota-queue/rota/core"
)

// Backend is a core.Backend on Redis. Make it with [Open] or [New].
type Backend struct {
	client redis.UniversalClient
	own    bool // Close closes the client
	opts   Options
	hub    *hub

	// announced has the queues this process has put into the list of queues.
	announced sync.Map

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	calls   sync.WaitGroup // every call under way, also those nobody waits for
}

var _ core.Backend = (*Backend)(nil)

// Open connects to the Redis that url names and checks that it can be used:
//
//	redis://user:password@host:port/db    rediss:// for TLS, unix:///path?db=0
//	redis://host1:port1?addr=host2:port2  a cluster, with more nodes to start from
//	redis+cluster://host:port             a cluster, with one node to start from
//
// A redis:// URL of one node of a cluster becomes a cluster client too. The query
// takes the options of redis.ParseURL or redis.ParseClusterURL, such as pool_size
// or read_timeout. For Sentinel, make the client yourself and give it to [New].
func Open(ctx context.Context, url string, opts Options) (*Backend, error) {
	client, err := dial(url)
	if err != nil {
		return nil, err
	}
	b, err := connect(ctx, client, opts)
	if lone, ok := client.(*redis.Client); ok && errors.Is(err, errClusterNode) {
		client = clusterOf(lone)
		_ = lone.Close()
		b, err = connect(ctx, client, opts)
	}
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	b.own = true
	return b, nil
}

// New makes a backend on the caller's client, which stays open when the backend
// closes: a *redis.Client (also one for Sentinel) or a *redis.ClusterClient, not
// a *redis.Ring. The backend decides by itself which of its commands are sent
// again; the client's MaxRetries does not apply to them.
func New(ctx context.Context, client redis.UniversalClient, opts Options) (*Backend, error) {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("redis: %w", core.Invalid("client", nil, "is nil"))
	}
	if _, ok := client.(*redis.Ring); ok {
		return nil, fmt.Errorf("redis: %w: a Ring has no place for what all queues share; give a Client or a ClusterClient", core.ErrMisconfigured)
	}
	return connect(ctx, client, opts)
}

func connect(ctx context.Context, client redis.UniversalClient, opts Options) (*Backend, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if wait := readTimeout(client); opts.WaitReplicas > 0 && wait > 0 && opts.WaitTimeout >= wait {
		return nil, core.Invalid("wait timeout", opts.WaitTimeout, fmt.Sprintf("is not shorter than the client's read timeout of %s", wait))
	}
	b := &Backend{client: client, opts: opts, closing: make(chan struct{})}
	b.hub = newHub(b)
	facts, err := await(ctx, b, b.examine, nil)
	if err != nil {
		return nil, err
	}
	if err := b.judge(facts); err != nil {
		return nil, err
	}
	return b, nil
}

// readTimeout is how long the client waits for an answer; 0 or less: for ever, or
// not known.
func readTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ReadTimeout
	case *redis.ClusterClient:
		return c.Options().ReadTimeout
	}
	return 0
}

// dial makes a client of a URL. It connects to nothing yet, unless it has to ask
// a lone node whether it belongs to a cluster.
func dial(raw string) (redis.UniversalClient, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", core.Invalid("url", nil, "can not be parsed")) // it may hold a password
	}
	scheme, cluster := strings.CutSuffix(u.Scheme, "+cluster")
	if cluster || u.Query().Has("addr") {
		u.Scheme = scheme
		opts, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, fmt.Errorf("redis: %w: %w", core.Invalid("url", nil, "is not one of a cluster"), err)
		}
		tuneCluster(opts)
		return redis.NewClusterClient(opts), nil
	}
	opts, err := redis.ParseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("redis: %w: %w", core.Invalid("url", nil, "is not one of a Redis"), err)
	}
	if !u.Query().Has("protocol") {
		opts.Protocol = 2 // its replies are cheaper to read, and nothing of 3 is used
	}
	opts.DialerRetries = 1 // the backend tries again itself
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), nil
}

// clusterOf makes a cluster client of a client of one of its nodes.
func clusterOf(lone *redis.Client) *redis.ClusterClient {
	o := lone.Options()
	opts := &redis.ClusterOptions{
		Addrs: []string{o.Addr}, ClientName: o.ClientName, Username: o.Username, Password: o.Password,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime,
		TLSConfig: o.TLSConfig,
	}
	tuneCluster(opts)
	return redis.NewClusterClient(opts)
}

func tuneCluster(opts *redis.ClusterOptions) {
	opts.Protocol = 2
	opts.DialerRetries = 1
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Capabilities says what the backend does natively.
func (b *Backend) Capabilities() core.Capabilities {
	return core.Capabilities{Name: "redis", PushWakeups: true}
}

// Now reads the server's clock.
func (b *Backend) Now(ctx context.Context) (time.Time, error) {
	return await(ctx, b, func(ctx context.Context) (time.Time, error) {
		now, err := b.client.Time(ctx).Result()
		if err != nil {
			return time.Time{}, storeError("time", err)
		}
		return now.UTC(), nil
	}, nil)
}

// graceOnClose is how long Close lets calls under way come to their end before
// it takes a client of its own away from them.
const graceOnClose = 2 * time.Second

// Close ends all subscriptions and waits for the calls under way. The client is
// closed if [Open] made it.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.calls.Wait()
		return nil
	}
	b.closed = true
	close(b.closing)
	b.mu.Unlock()
	b.hub.close()
	if !b.own {
		b.calls.Wait()
		return nil
	}
	done := make(chan struct{})
	go func() { b.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(graceOnClose):
	}
	err := b.client.Close()
	<-done
	return err
}

// begin registers a call, unless the backend is closed.
func (b *Backend) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("redis: %w", context.Cause(ctx))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("redis: %w", core.ErrClosed)
	}
	b.calls.Add(1)
	return nil
}

// await runs do, which the client may not be able to interrupt, and leaves it
// when ctx ends. What do answers after that goes to late.
func await[T any](ctx context.Context, b *Backend, do func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	if err := b.begin(ctx); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		defer b.calls.Done()
		return do(ctx)
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	var decided atomic.Bool // by the first of: the answer is there, the caller left
	go func() {
		defer b.calls.Done()
		// Values of ctx reach the client's hooks; its end does not, as an
		// interrupted read would lose the answer and cost the connection.
		value, err := do(context.WithoutCancel(ctx))
		if decided.CompareAndSwap(false, true) {
			answers <- answer{value, err}
		} else if late != nil && err == nil {
			late(value)
		}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return none, fmt.Errorf("redis: %w", context.Cause(ctx))
		}
		a := <-answers
		return a.value, a.err
	}
}
