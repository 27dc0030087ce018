package rotapostgres

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/core"
)

// An event's number says little of when it is committed: an event of a long
// transaction appears behind others with higher numbers. So a place in the stream
// is two snapshots of the database and a number: everything that was visible in
// the first has been read, and of what became visible up to the second, all up to
// the number. Nothing is read twice or left out, whatever commits when.
type eventPlace struct {
	seen, upto string // pg_snapshot as text; upto is empty between pages
	last       int64
}

func (p eventPlace) String() string {
	text := p.seen
	if p.upto != "" {
		text += "|" + p.upto + "|" + strconv.FormatInt(p.last, 10)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parsePlace(token string) (eventPlace, error) {
	invalid := core.Invalid("event token", token, "is not one this stream gave")
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return eventPlace{}, invalid
	}
	parts := strings.Split(string(raw), "|")
	p := eventPlace{seen: parts[0]}
	if len(parts) == 3 {
		p.upto = parts[1]
		if p.last, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
			return eventPlace{}, invalid
		}
	}
	if len(parts) != 1 && len(parts) != 3 || !isSnapshot(p.seen) || p.upto != "" && !isSnapshot(p.upto) {
		return eventPlace{}, invalid
	}
	return p, nil
}

// isSnapshot tells whether the server will take the text for a snapshot:
// xmin:xmax:list, in order.
func isSnapshot(s string) bool {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return false
	}
	xmin, err1 := strconv.ParseUint(parts[0], 10, 64)
	xmax, err2 := strconv.ParseUint(parts[1], 10, 64)
	if err1 != nil || err2 != nil || xmin == 0 || xmin > xmax {
		return false
	}
	last := uint64(0)
	for x := range strings.SplitSeq(parts[2], ",") {
		if x == "" && parts[2] == "" {
			return true
		}
		n, err := strconv.ParseUint(x, 10, 64)
		if err != nil || n < xmin || n >= xmax || n <= last {
			return false
		}
		last = n
	}
	return true
}

// nothingSeen is a snapshot in which nothing is visible.
const nothingSeen = "3:3:"

// Events reads a page of events.
func (b *Backend) Events(ctx context.Context, f core.EventFilter) (core.EventPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.EventPage{}, err
	}
	if err := core.CheckQueue(f.Queue); err != nil {
		return core.EventPage{}, err
	}
	place := eventPlace{seen: nothingSeen}
	if f.After != "" && f.After != core.EventsFromNow {
		if place, err = parsePlace(f.After); err != nil {
			return core.EventPage{}, err
		}
	}
	if f.After == core.EventsFromNow {
		return b.eventsFromNow(ctx, f.Queue)
	}
	page := core.EventPage{Next: f.After}
	// A page that ends with the second snapshot goes on behind it.
	for range 2 {
		if place.upto == "" {
			now, err := b.snapshotOf(ctx, f.Queue)
			if err != nil {
				return core.EventPage{}, err
			}
			place.upto, place.last = now, 0
		}
		events, err := b.eventsBetween(ctx, f.Queue, place, limit)
		if err != nil {
			return core.EventPage{}, err
		}
		page.Events = events
		if len(events) > 0 {
			page.Next = events[len(events)-1].Token
			break
		}
		place = eventPlace{seen: place.upto}
		page.Next = place.String()
	}
	return page, nil
}

// snapshotOf gives the present snapshot, or ErrNotFound without the queue.
func (b *Backend) snapshotOf(ctx context.Context, queue string) (string, error) {
	var snapshot string
	err := b.read(ctx, "read events", func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, b.sql(`SELECT pg_current_snapshot()::text FROM rota.queue q WHERE q.name = $1::text AND rota.exists_queue(q)`), queue).Scan(&snapshot)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", notFound("queue", queue)
	}
	return snapshot, err
}

func (b *Backend) eventsFromNow(ctx context.Context, queue string) (core.EventPage, error) {
	snapshot, err := b.snapshotOf(ctx, queue)
	if err != nil {
		return core.EventPage{}, err
	}
	return core.EventPage{Next: eventPlace{seen: snapshot}.String()}, nil
}

func (b *Backend) eventsBetween(ctx context.Context, queue string, p eventPlace, limit int) ([]core.Event, error) {
	events, err := collect(ctx, b, "read events", func(row pgx.CollectableRow) (core.Event, error) {
		e := core.Event{Queue: queue}
		var id, at int64
		var kind string
		var group *string
		err := row.Scan(&id, &kind, &at, &group, &e.JobID, &e.JobKind, &e.Attempt, &e.Error, &e.Worker)
		e.Kind, e.At, e.Group = core.EventKind(kind), timeOf(at), text(group)
		e.Token = eventPlace{seen: p.seen, upto: p.upto, last: id}.String()
		return e, err
	}, `SELECT e.id, e.kind, e.at, e.grp, e.job, e.jobkind, e.attempt, e.error, e.worker FROM rota.event e
		WHERE e.queue = (SELECT q.id FROM rota.queue q WHERE q.name = $1::text) AND e.id > $4::int8
			AND e.xact >= pg_snapshot_xmin($2::text::pg_snapshot) AND NOT pg_visible_in_snapshot(e.xact, $2::text::pg_snapshot)
			AND pg_visible_in_snapshot(e.xact, $3::text::pg_snapshot)
			AND e.at > (SELECT CASE q.event_ttl WHEN 0 THEN 0 ELSE rota.us() - q.event_ttl END FROM rota.queue q WHERE q.name = $1::text)
		ORDER BY e.id LIMIT $5::int4`, queue, p.seen, p.upto, p.last, limit)
	if err != nil {
		return nil, fmt.Errorf("events of queue %q: %w", queue, err)
	}
	return events, nil
}
