package rotaredis

import (
	"context"
	"strings"

	"github.com/rota-queue/rota/core"
)

// Events reads a page of events.
func (b *Backend) Events(ctx context.Context, f core.EventFilter) (core.EventPage, error) {
	limit, err := core.PageSize(f.Limit)
	if err != nil {
		return core.EventPage{}, err
	}
	if f.After != "" && f.After != core.EventsFromNow {
		ms, n, ok := strings.Cut(f.After, "-")
		if !ok || !isNumber(ms) || !isNumber(n) {
			return core.EventPage{}, core.Invalid("event token", f.After, "is not one this stream gave")
		}
	}
	reply, err := b.ask(ctx, scriptEvents, f.Queue, f.After, limit)
	if err != nil {
		return core.EventPage{}, err
	}
	v := list(reply)
	if len(v) == 0 {
		return core.EventPage{}, notFound("queue", f.Queue)
	}
	if f.After == core.EventsFromNow {
		return core.EventPage{Next: text(v[0])}, nil
	}
	page := core.EventPage{Next: f.After}
	for _, part := range v[1:] {
		e, err := decodeEvent(f.Queue, part)
		if err != nil {
			return core.EventPage{}, err
		}
		page.Events = append(page.Events, e)
		page.Next = e.Token
	}
	return page, nil
}

// decodeEvent makes an event of an entry of the stream.
func decodeEvent(queue string, entry any) (core.Event, error) {
	v := list(entry)
	if len(v) != 2 {
		return core.Event{}, badReply("events", entry)
	}
	e := core.Event{Queue: queue, Token: text(v[0])}
	fields := list(v[1])
	var d digits
	for i := 0; i+1 < len(fields); i += 2 {
		value := text(fields[i+1])
		switch text(fields[i]) {
		case "k":
			e.Kind = core.EventKind(value)
		case "t":
			e.At = timeOf(d.int(value))
		case "i":
			e.JobID = value
		case "g":
			e.Group = value
		case "j":
			e.JobKind = value
		case "a":
			e.Attempt = int(d.int(value))
		case "e":
			e.Error = value
		case "w":
			e.Worker = value
		}
	}
	return e, d.err
}
