package faultsuite

import (
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/rota-queue/rota/core"
)

// Kind is what an [Event] tells.
type Kind string

// The kinds of events.
const (
	// Try: a publisher is about to publish Job. Jobs of one call share Batch.
	Try Kind = "try"
	// Acked: the publish was acknowledged, with Seq (0 when the store said that it
	// has the job already).
	Acked Kind = "acked"
	// Claimed: a claim, sent at Sent, has brought this lease.
	Claimed Kind = "claimed"
	// Settling: a settle is about to be sent.
	Settling Kind = "settling"
	// Settled: it was answered with State or Err.
	Settled Kind = "settled"
	// Wrote: an extend or a save, sent at Sent, was answered.
	Wrote Kind = "wrote"
	// Started: the handler was called. Ended: its context has ended because of
	// Err.
	Started Kind = "started"
	Ended   Kind = "ended"
	// Note is a fact for one test, in Text.
	Note Kind = "note"
	// Bad is something that must never happen, in Text.
	Bad Kind = "bad"
)

// What Err says in an event.
const (
	// Lost is core.ErrLeaseLost.
	Lost = "lease lost"
	// Unknown is any error that leaves open what happened.
	Unknown = "unknown: "
)

// Event is one line of a process.
type Event struct {
	Proc string `json:"-"` // who wrote it
	Kind Kind   `json:"k"`
	// Sent and Done are when the call was sent and when it had returned; an event
	// without a call has Done only.
	Sent    int64       `json:"s,omitempty"`
	Done    int64       `json:"d,omitempty"`
	Job     string      `json:"j,omitempty"`
	Group   string      `json:"g,omitempty"`
	Batch   int         `json:"b,omitempty"`
	Seq     int64       `json:"q,omitempty"`
	Token   string      `json:"o,omitempty"` // of the lease
	Fence   int64       `json:"f,omitempty"` // of the lease, where it is claimed
	Attempt int         `json:"a,omitempty"`
	Lease   int64       `json:"l,omitempty"` // how long the lease lasts from Sent at least; 0: says nothing
	Action  core.Action `json:"c,omitempty"`
	State   core.State  `json:"z,omitempty"`
	Err     string      `json:"e,omitempty"`
	Text    string      `json:"t,omitempty"`
}

// errText is what an event says of an error.
func errText(err error) string {
	switch {
	case err == nil:
		return ""
	case isLost(err):
		return Lost
	}
	return Unknown + err.Error()
}

// isLost tells whether err is the loss of a lease.
func isLost(err error) bool { return errors.Is(err, core.ErrLeaseLost) }

// log writes the events of one process as lines.
type log struct {
	mu sync.Mutex
	w  io.Writer
}

// write writes a line with one write, so that a process that is killed leaves it
// whole or not at all, or torn at its end.
func (l *log) write(e Event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic("faultsuite: " + err.Error()) // a bug of this file
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(append(line, '\n')) // the parent may be gone: then so are we
}

// parse reads a line.
func parse(proc, line string) Event {
	var e Event
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind == "" {
		e = Event{Kind: Bad, Text: "not an event: " + line}
	}
	e.Proc = proc
	return e
}
