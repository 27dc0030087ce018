package rotawatermill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// grace is how long a message in hand is waited for after its context has ended.
// A handler that heeds its context acks or nacks within it.
const grace = time.Second

// The metadata of Watermill's middleware.PoisonQueue, which dead letters carry too.
const (
	poisonReason     = "reason_poisoned"
	poisonTopic      = "topic_poisoned"
	poisonHandler    = "handler_poisoned"
	poisonSubscriber = "subscriber_poisoned"
)

// handle is the worker's handler: it sends the message and waits for what becomes
// of it. What it returns settles the job.
func (s *subscription) handle(ctx context.Context, task *worker.Task) error {
	if err := s.spent(task.Job); err != nil {
		s.poison(task, ctx, err)
		return worker.DeadLetter(err)
	}
	why := new(reason)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, reasonKey{}, why))
	defer cancel() // before the outcome is written
	msg := decode(task.Job)
	msg.SetContext(ctx)
	if !s.send(ctx, msg) {
		// Not before the worker stops too, or it would claim the job again.
		select {
		case <-task.Stopping():
		case <-ctx.Done():
		}
		return worker.Release()
	}
	s.sub.count.delivered.Add(1)
	select {
	case <-msg.Acked():
		s.acked(task.Job)
		return nil
	case <-msg.Nacked():
		return s.nacked(task, msg, why.err())
	case <-ctx.Done():
		return s.late(ctx, task, msg, why)
	}
}

// spent answers an error for a job whose last attempt ended with its subscriber,
// without an ack or nack. Jobs that a person put back have another last failure.
func (s *subscription) spent(job *core.Job) error {
	limit, n := s.sub.cfg.MaxAttempts, len(job.Failures)
	if limit == 0 || job.Attempt <= limit || n == 0 || job.Failures[n-1].Error != core.LeaseExpired {
		return nil
	}
	return fmt.Errorf("all %d attempts are spent; the last: %s", limit, core.LeaseExpired)
}

// nacked chooses the outcome of a nack.
func (s *subscription) nacked(task *worker.Task, msg *message.Message, err error) error {
	if limit := s.sub.cfg.MaxAttempts; limit > 0 && task.Attempt() >= limit {
		s.poison(task, msg.Context(), err)
		return worker.DeadLetter(err)
	}
	if wait, asked := askedDelay(msg.Metadata, task.Job); asked {
		// The next attempt has to see it: DelayOnError counts up from there.
		for _, key := range []string{delay.DelayedForKey, delay.DelayedUntilKey} {
			if value, set := msg.Metadata[key]; set {
				task.SetHeader(key, value)
			}
		}
		task.SetHeader(headerAsked, "1")
		return worker.RetryAfter(wait, err)
	}
	return err
}

// poison writes the metadata of a dead letter.
func (s *subscription) poison(task *worker.Task, ctx context.Context, err error) {
	for name, value := range map[string]string{
		poisonReason:     err.Error(),
		poisonTopic:      s.topic,
		poisonHandler:    message.HandlerNameFromCtx(ctx),
		poisonSubscriber: message.SubscriberNameFromCtx(ctx),
	} {
		value = core.CutError(strings.ToValidUTF8(value, "�"))
		task.SetHeader(name, strings.ReplaceAll(value, "\x00", "�"))
	}
}

// late deals with a message whose context ended while it was in hand: because the
// lease was lost, the subscription closes, a person cancelled the job, or its time
// is over.
func (s *subscription) late(ctx context.Context, task *worker.Task, msg *message.Message, why *reason) error {
	cause := context.Cause(ctx)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-msg.Acked():
		s.acked(task.Job)
		return nil
	case <-msg.Nacked():
		return s.unanswered(task, msg, cause, why.err())
	case <-timer.C:
	}
	s.log.Info("A message was neither acked nor nacked, though its context has ended: it is given up",
		s.fields(task.Job).Add(map[string]any{"cause": cause.Error()}))
	if errors.Is(cause, core.ErrLeaseLost) {
		s.overtaken.Go(func() { s.watch(task.Job, msg) })
		return cause
	}
	if !msg.Nack() { // so that a late Ack answers false; this one came just in time
		s.acked(task.Job)
		return nil
	}
	return s.unanswered(task, msg, cause, cause)
}

// unanswered chooses the outcome of a message that was not acked before its
// context ended because of cause.
func (s *subscription) unanswered(task *worker.Task, msg *message.Message, cause, why error) error {
	switch {
	case errors.Is(cause, worker.ErrStopping): // is no failure
		return worker.Release()
	case errors.Is(cause, context.DeadlineExceeded):
		return s.nacked(task, msg, why)
	}
	return cause
}

// watch waits for the late ack of a message that lost its lease.
func (s *subscription) watch(job *core.Job, msg *message.Message) {
	select {
	case <-msg.Acked():
		s.ackLost(job, core.ErrLeaseLost)
	case <-msg.Nacked():
	case <-s.done:
		msg.Nack()
	}
}
