package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// minServer is the oldest server whose functions are enough (server_version_num).
const minServer = 130000

// Backend is a core.Backend on PostgreSQL. Make it with [Open] or [New].
type Backend struct {
	pool     *pgxpool.Pool
	own      bool            // Close closes the pool
	requests *sync.WaitGroup // of cancellers, when own
	opts     Options

	texts  sync.Map // statements with the schema's name in them
	bounds boundsMap
	known  sync.Map // names of queues that were made, and never go away
	hints  *hinter
	watch  *watcher
	hub    *hub
	making chan struct{} // held by who makes queues outside the pool

	base  context.Context // ends with Close
	end   context.CancelFunc
	mu    sync.Mutex // orders begin and Close
	calls sync.WaitGroup
}

var _ core.Backend = (*Backend)(nil)

// startPatience bounds how long Open waits for a server that is starting, unless
// its context ends before.
const startPatience = 30 * time.Second

// Open connects to the server that a URL (or DSN) of pgxpool.ParseConfig names,
// waits for up to 30 seconds while it starts, and does what Options.Migrate says.
//
//	postgres://user:password@host:5432/database?pool_max_conns=8
//
// Behind PgBouncer in transaction mode add default_query_exec_mode=exec, and give
// Options.ListenURL or NotifyOff.
func Open(ctx context.Context, url string, opts Options) (*Backend, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: the URL is not one pgxpool understands: %w", core.ErrMisconfigured, err)
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "rota"
	}
	requests := &sync.WaitGroup{}
	config.ConnConfig.BuildContextWatcherHandler = cancelRequests(requests)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, storeError(ctx, "open", err)
	}
	b, err := openRetrying(ctx, pool, opts)
	if err != nil {
		pool.Close()
		requests.Wait()
		return nil, err
	}
	b.own, b.requests = true, requests
	return b, nil
}

func openRetrying(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Backend, error) {
	deadline := time.Now().Add(startPatience)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		b, err := New(ctx, pool, opts)
		if err == nil || !errors.Is(err, core.ErrUnavailable) || time.Now().Add(pause).After(deadline) {
			return b, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("postgres: open: %w (%w)", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

// New makes a backend on the caller's pool, which stays open when the backend
// closes. The pool needs at least one connection that nobody holds for long. With
// the driver's defaults a call whose context ends breaks its connection; what Open
// does instead is to set BuildContextWatcherHandler to a
// pgconn.CancelRequestContextWatcherHandler.
func New(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Backend, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, core.Invalid("pool", nil, "is nil")
	}
	if opts.ListenURL != "" {
		if _, err := pgx.ParseConfig(opts.ListenURL); err != nil {
			return nil, fmt.Errorf("postgres: %w: the ListenURL is not one pgx understands: %w", core.ErrMisconfigured, err)
		}
	}
	b := &Backend{pool: pool, opts: opts, making: make(chan struct{}, 1)}
	b.base, b.end = context.WithCancel(context.Background())
	b.hints = newHinter(b)
	b.watch = &watcher{b: b}
	b.hub = newHub(b)
	if err := b.checkServer(ctx); err != nil {
		return nil, err
	}
	if err := b.prepareSchema(ctx); err != nil {
		return nil, err
	}
	if err := b.checkRights(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// prepareSchema does what Options.Migrate says. Who may not migrate may still work
// with a schema that is up to date.
func (b *Backend) prepareSchema(ctx context.Context) error {
	is, err := look(ctx, b.pool, b.opts.Schema)
	if err != nil {
		return err
	}
	if is.fits() == outdated && b.opts.Migrate == MigrateAuto {
		if is, err = migrate(ctx, b.pool, b.opts.Schema, schemaVersion); err != nil {
			return err
		}
		if own := ownFunctions(); is.fits() == outdated && is.functions.revision == own.revision {
			b.opts.Logger.Warn("rota: replaced functions that another build of the same revision of this package had put there; let all processes on a schema run one version",
				"schema", b.opts.Schema, "had", is.functions.String(), "has", own.String())
		}
	} else if err := is.schemaError(b.opts.Schema); err != nil {
		return err
	}
	if is.fits() == usable {
		b.opts.Logger.Warn("rota: the schema has the functions of a later version of this package, and they stay; update this program too",
			"schema", b.opts.Schema, "has", is.functions.String(), "program", ownFunctions().String())
	}
	return nil
}

// checkServer refuses a server that can not do what is needed.
func (b *Backend) checkServer(ctx context.Context) error {
	var version int
	var encoding, isolation string
	var readOnly bool
	err := b.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
		current_setting('default_transaction_isolation'), current_setting('transaction_read_only')::bool`).Scan(&version, &encoding, &isolation, &readOnly)
	if err != nil {
		return storeError(ctx, "open", err)
	}
	if known := serverErrors["25006"]; readOnly {
		return fmt.Errorf("postgres: open: %w: %s", known.kind, known.text)
	}
	return serverFits(version, encoding, isolation)
}

// neededIsolation is what transactions must have by default.
const neededIsolation = "read committed"

// serverFits judges server_version_num, the encoding of the database and the
// isolation that transactions have by default.
func serverFits(version int, encoding, isolation string) error {
	switch {
	case version < minServer:
		return fmt.Errorf("postgres: %w: the server is version %d.%d, and 13 or later is needed", core.ErrMisconfigured, version/10000, version%10000)
	case encoding != "UTF8":
		return fmt.Errorf("postgres: %w: the database has encoding %s, and UTF8 is needed", core.ErrMisconfigured, encoding)
	case isolation != neededIsolation:
		return fmt.Errorf("postgres: %w: default_transaction_isolation is %q for this role, and \"read committed\" is needed: ALTER ROLE ... SET it, or put it into the URL", core.ErrMisconfigured, isolation)
	}
	return nil
}

// checkRights refuses a role that may read but not write.
func (b *Backend) checkRights(ctx context.Context) error {
	var lacking string
	err := b.pool.QueryRow(ctx, b.sql(`SELECT coalesce(string_agg(c.relname, ', '), '') FROM pg_class c
		WHERE c.relnamespace = $1::text::regnamespace AND CASE c.relkind
			WHEN 'r' THEN NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
			WHEN 'S' THEN NOT (has_sequence_privilege(c.oid, 'UPDATE') AND has_sequence_privilege(c.oid, 'SELECT')) ELSE false END`), b.opts.Schema).Scan(&lacking)
	if err != nil {
		return storeError(ctx, "open", err)
	}
	if lacking != "" {
		return fmt.Errorf("postgres: %w: the role lacks rights on %s of schema %q: grant it SELECT, INSERT, UPDATE, DELETE on all tables and USAGE, SELECT, UPDATE on all sequences of the schema",
			core.ErrMisconfigured, lacking, b.opts.Schema)
	}
	return nil
}

// Capabilities says what the backend does natively.
func (b *Backend) Capabilities() core.Capabilities {
	return core.Capabilities{Name: "postgres", Transactions: true, PushWakeups: b.opts.Notify == NotifyOn}
}

// Now reads the store's clock.
func (b *Backend) Now(ctx context.Context) (time.Time, error) {
	us, err := readOne[int64](ctx, b, "read the clock", "SELECT rota.us()")
	return timeOf(us), err
}

// Close ends everything the backend started. A pool that the caller gave stays
// open.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.calls.Wait()
	if b.own {
		b.pool.Close()
		b.requests.Wait()
	}
	return nil
}

// begin starts a call: it refuses one after Close or the end of ctx. Whoever
// begins calls b.calls.Done.
func (b *Backend) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("postgres: %w", context.Cause(ctx))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.base.Err() != nil {
		return fmt.Errorf("postgres: %w", core.ErrClosed)
	}
	b.calls.Add(1)
	return nil
}

// sql puts the schema's name into a statement.
func (b *Backend) sql(text string) string {
	if s, ok := b.texts.Load(text); ok {
		return s.(string)
	}
	s := render(b.opts.Schema, text)
	b.texts.Store(text, s)
	return s
}

// A call that changes nothing when it fails is made this often.
const maxTries = 12

// acquire takes a connection, and says so when there is none.
func (b *Backend) acquire(ctx context.Context, what string) (*pgxpool.Conn, error) {
	conn, err := b.pool.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	if s := b.pool.Stat(); ctx.Err() != nil && s.AcquiredConns() >= s.MaxConns() {
		return nil, fmt.Errorf("postgres: %s: %w: all %d connections of the pool were in use until the context ended: raise pool_max_conns, or end transactions sooner (%w)",
			what, core.ErrUnavailable, s.MaxConns(), context.Cause(ctx))
	}
	return nil, storeError(ctx, what, err)
}

// connect opens a connection like those of the pool, outside of it.
func (b *Backend) connect(ctx context.Context) (*pgx.Conn, error) {
	config := b.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err == nil && config.AfterConnect != nil {
		if err = config.AfterConnect(ctx, conn); err != nil {
			hangUp(conn)
		}
	}
	return conn, err
}

// hangUp closes a connection that is outside the pool.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// do runs f on a connection. When the server has refused it for the sake of
// another transaction, or nothing was sent, f runs again.
func (b *Backend) do(ctx context.Context, what string, f func(conn *pgxpool.Conn) error) error {
	return b.try(ctx, what, f, false)
}

// act is do for a statement whose function calls rota.hurry: when that has let go of
// everything because it would have had to wait for another transaction, it is made
// again, until ctx ends.
func (b *Backend) act(ctx context.Context, what string, f func(conn *pgxpool.Conn) error) error {
	for try := 1; ; try++ {
		err := b.do(ctx, what, f)
		if !lockTimeout(err) {
			return err
		}
		if !b.pause(ctx, try) {
			return storeError(ctx, what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// read is do for an f that changes nothing. It runs again also when the connection
// has ended, but once only: a server or proxy that closes idle connections is found
// out by the next call on each, and of a call that might change something nobody
// knows then whether it has.
func (b *Backend) read(ctx context.Context, what string, f func(conn *pgxpool.Conn) error) error {
	return b.try(ctx, what, f, true)
}

func (b *Backend) try(ctx context.Context, what string, f func(conn *pgxpool.Conn) error, reads bool) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.calls.Done()
	for try := 1; ; try++ {
		conn, err := b.acquire(ctx, what)
		if err != nil {
			return err
		}
		if err = use(conn, f); err == nil {
			return nil
		}
		again := conflicts(err) || pgconn.SafeToRetry(err)
		if reads && ended(err) {
			again, reads = true, false
		}
		if again && try < maxTries && b.pause(ctx, try) {
			continue
		}
		if conflicts(err) {
			return fmt.Errorf("postgres: %s: %w: it met other transactions %d times, nothing was done (%w)", what, core.ErrUnavailable, try, err)
		}
		return storeError(ctx, what, err)
	}
}

func use(conn *pgxpool.Conn, f func(conn *pgxpool.Conn) error) error {
	defer conn.Release()
	return f(conn)
}

// one runs a statement that gives one value.
func one[T any](ctx context.Context, b *Backend, what, sql string, args ...any) (T, error) {
	var v T
	err := b.do(ctx, what, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(sql), args...).Scan(&v)
	})
	return v, err
}

// actOne is one for a statement of act.
func actOne[T any](ctx context.Context, b *Backend, what, sql string, args ...any) (T, error) {
	var v T
	err := b.act(ctx, what, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(sql), args...).Scan(&v)
	})
	return v, err
}

// readOne is one for a statement that changes nothing.
func readOne[T any](ctx context.Context, b *Backend, what, sql string, args ...any) (T, error) {
	var v T
	err := b.read(ctx, what, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(sql), args...).Scan(&v)
	})
	return v, err
}

// timeOf turns stored microseconds into a time; zero stays zero.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
