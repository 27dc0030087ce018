package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// recorder is the handler. It writes down what happens, and nothing else in the
// program looks at the events.
type recorder struct {
	mu      sync.Mutex
	sent    []time.Time    // by event number: when it was published
	runs    []handled      // in the order of their starts
	busy    map[string]int // by customer: events at work right now
	clashes int            // starts while another event of the customer was at work
	atWork  int            // events at work right now, and the most at once
	most    int
	left    int
	done    chan struct{} // closed when nothing is left
}

// handled is one run of the handler.
type handled struct {
	event
	waited time.Duration // from publish to start
}

func newRecorder(events int) *recorder {
	return &recorder{
		sent: make([]time.Time, events), busy: map[string]int{}, left: events, done: make(chan struct{}),
	}
}

// published notes when an event was sent. Call it before the publish.
func (r *recorder) published(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[e.N] = time.Now()
}

// handle is what the Router calls for each message. It does not lock customers and
// does not sort: that two events of one customer never meet here is rota's work.
func (r *recorder) handle(msg *message.Message) error {
	var e event
	if err := json.Unmarshal(msg.Payload, &e); err != nil {
		return err
	}
	r.start(e)
	time.Sleep(e.work()) // the work
	r.end(e)
	return nil
}

func (r *recorder) start(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, handled{event: e, waited: time.Since(r.sent[e.N])})
	r.busy[e.Customer]++
	if r.busy[e.Customer] > 1 {
		r.clashes++
	}
	r.atWork++
	r.most = max(r.most, r.atWork)
}

func (r *recorder) end(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy[e.Customer]--
	r.atWork--
	if r.left--; r.left == 0 {
		close(r.done)
	}
}

// wait waits until as many events were handled as there are.
func (r *recorder) wait(limit time.Duration) error {
	select {
	case <-r.done:
		return nil
	case <-time.After(limit):
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("%d events were not handled within %s", r.left, limit)
	}
}
