package rotawatermill

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// subscription is one call of Subscribe: a worker whose slots are the messages in
// hand. Claims, heartbeats, lost leases, settling and the order of stopping are the
// worker's.
type subscription struct {
	sub    *Subscriber
	topic  string
	log    watermill.LoggerAdapter
	out    chan *message.Message
	worker *worker.Worker

	mu      sync.Mutex
	stopped bool
	acks    map[*core.Job]struct{} // acked, not settled yet
	// No message is to be sent when one of them is closed: ended is that of
	// Subscribe's context.
	stopping chan struct{}
	ended    <-chan struct{}
	// senders are the handlers that may send on out.
	senders sync.WaitGroup

	closing atomic.Bool
	done    chan struct{} // closed when all has ended
	err     error         // what close answers, to be read after done
	// overtaken are the watches over messages that lost their lease in hand.
	overtaken sync.WaitGroup
}

func newSubscription(s *Subscriber, ctx context.Context, topic, queue string) (*subscription, error) {
	sub := &subscription{
		sub: s, topic: topic,
		log:      s.cfg.Logger.With(watermill.LogFields{"topic": topic, "consumer_group": s.cfg.ConsumerGroup}),
		out:      make(chan *message.Message),
		acks:     make(map[*core.Job]struct{}),
		stopping: make(chan struct{}),
		ended:    ctx.Done(),
		done:     make(chan struct{}),
	}
	w, err := worker.New(s.backend, worker.Config{
		Queues:       []worker.Queue{{Name: queue}},
		Concurrency:  s.cfg.MaxInFlight,
		Prefetch:     int(core.None), // a leased group is kept from others: MaxInFlight bounds that
		Lease:        s.cfg.Lease,
		MaxHandling:  s.cfg.MaxHandling,
		PollInterval: s.cfg.PollInterval,
		Handler:      worker.HandlerFunc(sub.handle),
		Retry:        func(job *core.Job, _ error) time.Duration { return s.cfg.NackDelay(job.Attempt) },
		StopTimeout:  core.Forever, // close says when it is over
		Owner:        s.cfg.Owner,
		Logger:       slogTo(sub.log),
		Observer:     worker.Observer{Settled: sub.settled, LeaseLost: sub.leaseLost},
	})
	if err != nil {
		return nil, err
	}
	sub.worker = w
	return sub, w.Start(ctx)
}

// stop ends the delivery. It does not wait.
func (s *subscription) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	s.stopped = true
	close(s.stopping)
	go func() { _ = s.worker.Stop(context.Background()) }() // close has the answer
}

// close ends the subscription; all callers wait for its end.
func (s *subscription) close() error {
	if s.closing.CompareAndSwap(false, true) {
		s.err = s.end()
		close(s.done)
		s.overtaken.Wait()
	}
	<-s.done
	return s.err
}

func (s *subscription) end() error {
	s.stop()
	drain, cancel := context.WithTimeout(context.Background(), s.sub.cfg.DrainTimeout)
	defer cancel()
	err := s.worker.Stop(drain)
	s.senders.Wait()
	close(s.out)
	s.sub.forget(s)
	if err != nil {
		return fmt.Errorf("close subscription to topic %q: %w", s.topic, err)
	}
	return nil
}

// closeAfter ends the subscription with ctx, and with its worker, which stops by
// itself when the backend is closed.
func (s *subscription) closeAfter(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.byItself():
	case <-s.done:
		return
	}
	if err := s.close(); err != nil {
		s.log.Error("closing the subscription", err, nil)
	}
}

// byItself is closed when the worker stops though nobody told it to: after Stop it is
// Close that ends the subscription.
func (s *subscription) byItself() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		select {
		case <-s.worker.Done():
		case <-s.done:
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stopped {
			close(ended)
		}
	}()
	return ended
}

// send hands a message over. It reports false when nobody took it before the
// subscription stopped or ctx ended.
func (s *subscription) send(ctx context.Context, msg *message.Message) bool {
	if !s.mayBegin() {
		return false
	}
	defer s.senders.Done()
	select {
	case <-s.ended:
		return false
	default:
	}
	select {
	case s.out <- msg:
		return true
	case <-s.stopping:
		return false
	case <-s.ended:
		return false
	case <-ctx.Done():
		return false
	}
}

func (s *subscription) mayBegin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.senders.Add(1)
	}
	return !s.stopped
}

// acked notes an ack until it is known whether it counts.
func (s *subscription) acked(job *core.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acks[job] = struct{}{}
}

// settled is told by the worker how a lease ended.
func (s *subscription) settled(e worker.Settlement) {
	s.mu.Lock()
	_, acked := s.acks[e.Job]
	delete(s.acks, e.Job)
	s.mu.Unlock()
	count := &s.sub.count
	switch {
	case acked && e.Err != nil:
		s.ackLost(e.Job, e.Err)
	case acked:
		count.acked.Add(1)
	case e.Err != nil:
	case e.Action == core.Release:
		count.returned.Add(1)
	case e.Action == core.Retry, e.Action == core.Dead:
		count.nacked.Add(1)
	}
}

func (s *subscription) leaseLost(*core.Job) { s.sub.count.leasesLost.Add(1) }

// ackLost notes an ack that was not written: the lease was lost, or the store did
// not answer until the end.
func (s *subscription) ackLost(job *core.Job, err error) {
	s.sub.count.acksLost.Add(1)
	s.log.Error("An ack was not written: the message will be delivered again", err, s.fields(job))
}

func (s *subscription) fields(job *core.Job) watermill.LogFields {
	return watermill.LogFields{
		"message_uuid": decodeUUID(job), "job": job.ID, "group": job.Group, "attempt": job.Attempt,
	}
}
