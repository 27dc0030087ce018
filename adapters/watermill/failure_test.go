package rotawatermill_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// deadLetters lists the dead letters of a queue.
func deadLetters(t testing.TB, b core.Inspector, queue string) []*core.Job {
	t.Helper()
	page, err := b.Jobs(t.Context(), core.JobFilter{Queue: queue, State: core.StateDead})
	if err != nil {
		t.Fatal(err)
	}
	return page.Jobs
}

// TestMaxAttempts: the last nack makes a dead letter, in one step, with the poison
// queue's metadata; redriven, it comes back at its old place.
func TestMaxAttempts(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), topic, "g", "0", "1", "2")
		ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{MaxAttempts: 2, NackDelay: noDelay}), topic)
		receiveText(t, ch, "0").Nack()
		last := receiveText(t, ch, "0")
		rotawatermill.Reason(last.Context(), errors.New("bad \xff\x00 order"))
		last.Nack()
		one := receiveText(t, ch, "1") // the group goes on
		eventually(t, "a dead letter", func() bool { return len(deadLetters(t, b, topic)) == 1 })
		dead := deadLetters(t, b, topic)[0]
		if len(dead.Failures) != 2 || dead.Failures[0].Error != rotawatermill.ErrNacked.Error() {
			t.Errorf("failures %+v", dead.Failures)
		}
		if reason := dead.Headers[middleware.ReasonForPoisonedKey]; !strings.HasPrefix(reason, "bad ") || !strings.HasSuffix(reason, " order") {
			t.Errorf("reason %q", reason)
		}
		if got := dead.Headers[middleware.PoisonedTopicKey]; got != topic {
			t.Errorf("topic %q", got)
		}
		move := core.MoveRequest{Queue: topic, To: core.StatePending, IDs: []string{dead.ID}}
		if res, err := b.Move(t.Context(), move); err != nil || res.Moved != 1 {
			t.Fatalf("redrive: %+v, %v", res, err)
		}
		one.Ack()
		receiveText(t, ch, "0").Ack() // before 2
		receiveText(t, ch, "2").Ack()
	})
}

// TestOnExhaustedHold: the group waits for a person, others go on.
func TestOnExhaustedHold(t *testing.T) {
	eachBackend(t, func(t *testing.T, b core.Backend, topic string) {
		pub := newPublisher(t, b, rotawatermill.PublisherConfig{})
		sub := newSubscriber(t, b, rotawatermill.SubscriberConfig{
			ConsumerGroup: "c", MaxAttempts: 1, OnExhausted: core.Hold, MaxInFlight: 1,
		})
		queue := topic + "@c"
		if err := b.Configure(t.Context(), queue, core.QueueConfig{EventTTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		ch := subscribe(t, sub, topic)
		publish(t, pub, topic, "g", "0", "1")
		receiveText(t, ch, "0").Nack()
		publish(t, pub, topic, "other", "x")
		receiveText(t, ch, "x").Ack()
		receiveNone(t, ch, 30*time.Millisecond)
		info, err := b.QueueInfo(t.Context(), queue)
		if err != nil || info.Config.EventTTL != time.Hour || info.Config.OnExhausted != core.Hold {
			t.Fatalf("configuration %+v, %v", info.Config, err)
		}
		if err := b.ActOnGroup(t.Context(), queue, "g", core.ReleaseGroup); err != nil {
			t.Fatal(err)
		}
		receiveText(t, ch, "1").Ack()
	})
}

// TestCrashesCountAsAttempts: a message whose subscribers die is a dead letter
// after MaxAttempts, though nobody ever nacked it.
func TestCrashesCountAsAttempts(t *testing.T) {
	b := newMemory(t)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0", "1")
	for range 2 { // a process that dies: it claims and is never heard of again
		eventually(t, "a claim", func() bool {
			res, err := b.Claim(t.Context(), core.ClaimRequest{Queue: "t", Max: 1, Lease: core.MinLease})
			return err == nil && len(res.Leases) == 1
		})
	}
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{MaxAttempts: 2, NackDelay: noDelay}), "t")
	receiveText(t, ch, "1").Ack()
	dead := deadLetters(t, b, "t")
	if len(dead) != 1 || string(dead[0].Payload) != "0" || dead[0].Headers[middleware.ReasonForPoisonedKey] == "" {
		t.Fatalf("dead letters %+v", dead)
	}
}

// TestRecordErrors: the middleware brings the handler's error into the job's
// history, and lets it choose the outcome.
func TestRecordErrors(t *testing.T) {
	b := newMemory(t)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "x")
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{NackDelay: noDelay}), "t")
	handle := func(err error) {
		msg := receive(t, ch)
		h := rotawatermill.RecordErrors(func(*message.Message) ([]*message.Message, error) { return nil, err })
		if _, got := h(msg); !errors.Is(got, err) {
			t.Fatalf("the middleware returned %v", got)
		}
		msg.Nack()
	}
	handle(errors.New("first"))
	handle(worker.Snooze(time.Millisecond)) // spends no attempt
	handle(errors.New("second"))
	handle(worker.DeadLetter(errors.New("third")))
	eventually(t, "a dead letter", func() bool { return len(deadLetters(t, b, "t")) == 1 })
	var got []string
	for _, f := range deadLetters(t, b, "t")[0].Failures {
		got = append(got, f.Error)
	}
	if strings.Join(got, ",") != "first,second,third" {
		t.Fatalf("failures %v", got)
	}
}

// TestPersonCancels: cancelling the job ends the message's context, and it does not
// come again.
func TestPersonCancels(t *testing.T) {
	b := newMemory(t)
	publish(t, newPublisher(t, b, rotawatermill.PublisherConfig{}), "t", "g", "0", "1")
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{NackDelay: noDelay}), "t")
	msg := receiveText(t, ch, "0")
	id := rotawatermill.JobFromCtx(msg.Context()).ID
	if _, err := b.Move(t.Context(), core.MoveRequest{Queue: "t", To: core.StateCancelled, IDs: []string{id}}); err != nil {
		t.Fatal(err)
	}
	ended(t, msg.Context().Done())
	if cause := context.Cause(msg.Context()); !errors.Is(cause, core.ErrCancelled) {
		t.Fatalf("cause %v", cause)
	}
	msg.Nack()
	receiveText(t, ch, "1").Ack()
	if job, err := b.Job(t.Context(), "t", id); err != nil || job.State != core.StateCancelled {
		t.Fatalf("job %+v, %v", job, err)
	}
}

// TestJobTimeout: a job published with a time limit fails when it is over, acked
// or not, and is tried again.
func TestJobTimeout(t *testing.T) {
	b := newMemory(t)
	pub := newPublisher(t, b, rotawatermill.PublisherConfig{EditJob: func(_ string, _ *message.Message, job *core.NewJob) error {
		job.Timeout = 20 * time.Millisecond
		return nil
	}})
	publish(t, pub, "t", "g", "x")
	ch := subscribe(t, newSubscriber(t, b, rotawatermill.SubscriberConfig{MaxAttempts: 2, NackDelay: noDelay}), "t")
	msg := receive(t, ch)
	ended(t, msg.Context().Done())
	if cause := context.Cause(msg.Context()); !errors.Is(cause, context.DeadlineExceeded) {
		t.Fatalf("cause %v", cause)
	}
	msg.Nack()
	forgotten := receive(t, ch) // neither acked nor nacked
	eventually(t, "a dead letter", func() bool { return len(deadLetters(t, b, "t")) == 1 })
	if forgotten.Ack() {
		t.Error("a late ack answers true")
	}
}
