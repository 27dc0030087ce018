package rotapostgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-queue/rota/core"
)

// Errors of this store; they come wrapped, with the values at hand.
var (
	// ErrTxFailed: a statement before this one has failed in the caller's
	// transaction, and the server does nothing more in it.
	ErrTxFailed = errors.New("the transaction has failed before")
	// ErrTxConflict: the caller's transaction met another one (a serialization
	// failure or a deadlock).
	ErrTxConflict = errors.New("the transaction met another one")
)

// serverErrors explains what a PostgreSQL answers, by SQLSTATE or its class.
var serverErrors = map[string]struct {
	kind error
	text string
}{
	"08":    {core.ErrUnavailable, "the connection to the server broke"},
	"28":    {core.ErrMisconfigured, "the server refuses the user or password: correct the URL or pg_hba.conf"},
	"3D":    {core.ErrMisconfigured, "there is no such database: create it or correct the URL"},
	"26000": {core.ErrMisconfigured, preparedGone},
	"42P05": {core.ErrMisconfigured, preparedGone},
	"25006": {core.ErrMisconfigured, "the server is read-only (a standby, or default_transaction_read_only), nothing was written: connect to the primary (target_session_attrs=read-write)"},
	"25P02": {ErrTxFailed, "nothing was done: roll the transaction back and begin again"},
	"40001": {ErrTxConflict, "nothing was done: roll the transaction back and begin again"},
	"40P01": {ErrTxConflict, "nothing was done: roll the transaction back and begin again"},
	"RT003": {ErrTxConflict, "nothing was done: roll the transaction back and begin again"},
	"42501": {core.ErrMisconfigured, "the role lacks a right (it needs USAGE on the schema and all rights on its tables and sequences, and to install it CREATE on the database, or on the schema where that is there): grant it"},
	"42P01": {core.ErrMisconfigured, "a table of the schema is missing: run rota migrate"},
	"42883": {core.ErrMisconfigured, "a function of the schema is missing or of another version: run rota migrate, or update the program"},
	"42703": {core.ErrMisconfigured, "a column of the schema is missing: run rota migrate, or update the program"},
	"3F000": {core.ErrMisconfigured, "the schema is missing: run rota migrate"},
	"53100": {core.ErrMisconfigured, "the server's disk is full, nothing was written: make room"},
	"53200": {core.ErrMisconfigured, "the server is out of memory or locks, nothing was done: raise max_locks_per_transaction or use smaller batches"},
	"53300": {core.ErrUnavailable, "the server has no connection left: lower pool_max_conns or raise max_connections"},
	"54000": {core.ErrMisconfigured, "the server's limit is exceeded, nothing was done: use smaller batches"},
	"55P03": {core.ErrUnavailable, "a lock was not had within lock_timeout, nothing was done: try again, or raise lock_timeout for this role"},
	"57014": {core.ErrUnavailable, "the server cancelled the statement, nothing was done: raise statement_timeout for this role, or use smaller batches"},
	"57P01": {core.ErrUnavailable, "the server is shutting down"},
	"57P02": {core.ErrUnavailable, "the server has crashed and is recovering"},
	"57P05": {core.ErrUnavailable, "the server has closed the idle session (idle_session_timeout), nothing was done: try again"},
	"25P03": {ErrTxFailed, "the server has closed the session (idle_in_transaction_session_timeout) and rolled back: begin again, and take less time"},
	"25P04": {ErrTxFailed, "the server has closed the session (transaction_timeout) and rolled back: begin again, and take less time"},
	"57P03": {core.ErrUnavailable, "the server is starting up or shutting down"},
	"0A000": {core.ErrMisconfigured, "the server can not do it: PostgreSQL 13 or later is needed, and sessions from before a change of the schema must end"},
	"22021": {core.ErrInvalid, "a text is not valid in the database's encoding (a NUL byte, or the encoding is not UTF8), nothing was done"},
	"22P05": {core.ErrInvalid, "a text can not be stored in the database's encoding (a NUL byte, or the encoding is not UTF8), nothing was done"},
}

// preparedGone is what a pooler does that gives each transaction another session.
const preparedGone = "the session is not the one in which the statement was prepared, nothing was done: behind PgBouncer in transaction mode add default_query_exec_mode=exec to the URL"

// storeError explains an error of the driver or the server; nil stays nil. What
// the caller's context ended keeps its cause.
func storeError(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	isServer := errors.As(err, &pg)
	if ctx.Err() != nil && (!isServer || pg.Code == "57014") {
		return fmt.Errorf("postgres: %s: %w", what, context.Cause(ctx))
	}
	if isServer {
		known, ok := serverErrors[pg.Code]
		if !ok {
			known, ok = serverErrors[pg.Code[:min(2, len(pg.Code))]]
		}
		if ok {
			return fmt.Errorf("postgres: %s: %w: %s (%w)", what, known.kind, known.text, err)
		}
		return fmt.Errorf("postgres: %s: %w", what, err)
	}
	if strings.Contains(err.Error(), "closed pool") {
		return fmt.Errorf("postgres: %s: %w: the pool has been closed", what, core.ErrClosed)
	}
	var dial *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &dial) || errors.As(err, &network) || isBroken(err) {
		return fmt.Errorf("postgres: %s: %w: %w", what, core.ErrUnavailable, oneLine{err})
	}
	return fmt.Errorf("postgres: %s: %w", what, err)
}

// oneLine is an error of the driver, which takes a line for each address it has
// tried.
type oneLine struct{ err error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.err.Error()), " ") }
func (e oneLine) Unwrap() error { return e.err }

// isBroken tells that a connection ended while it was in use.
func isBroken(err error) bool {
	text := err.Error()
	return pgconn.SafeToRetry(err) || strings.Contains(text, "unexpected EOF") || strings.Contains(text, "conn closed") ||
		strings.Contains(text, "broken pipe") || strings.Contains(text, "connection reset") || strings.Contains(text, "closed network connection")
}

// ended tells that the connection has ended, by a message of the server or without.
func ended(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "57P01" || pg.Code == "57P05" || strings.HasPrefix(pg.Code, "08")
	}
	return isBroken(err)
}

// conflicts tells that a transaction met another one and changed nothing.
func conflicts(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "RT003")
}

// lockTimeout tells that a statement did not get a lock in time and changed nothing.
func lockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

func notFound(what, name string) error {
	return fmt.Errorf("%s %q: %w", what, name, core.ErrNotFound)
}

func errLeaseLost(ref core.LeaseRef) error {
	return fmt.Errorf("job %q in queue %q: %w", ref.JobID, ref.Queue, core.ErrLeaseLost)
}
