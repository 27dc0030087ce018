package core

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"time"
)

// Publish publishes one job and returns its result; a refused job's error is
// returned as the error.
func Publish(ctx context.Context, p Producer, job NewJob) (PublishResult, error) {
	if err := checkGiven("producer", p); err != nil {
		return PublishResult{}, err
	}
	res, err := p.Publish(ctx, PublishRequest{Jobs: []NewJob{job}})
	if err != nil {
		return PublishResult{}, err
	}
	return res[0], res[0].Err
}

// checkGiven answers an error for a nil interface, and for one around a nil pointer,
// which is what the variable of a backend holds that could not be opened.
func checkGiven(field string, given any) error {
	if v := reflect.ValueOf(given); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return Invalid(field, nil, "is nil")
	}
	return nil
}

// Bounds of the polling of Wait and Follow.
const (
	pollMin = 5 * time.Millisecond
	pollMax = 500 * time.Millisecond
)

// Wait blocks until the job has finished and returns it, with its result. A job
// that the store no longer holds answers ErrNotFound: give jobs to wait for a
// result or a retention. When ctx ends, Wait returns its cause.
func Wait(ctx context.Context, b interface {
	Inspector
	Waker
}, queue, id string) (*Job, error) {
	if err := checkGiven("backend", b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	job, err := b.Job(ctx, queue, id) // before all that may take long
	if err != nil || job.State.Finished() {
		return job, err
	}
	wakes, err := b.Wakes(ctx, queue)
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrClosed)) {
		return nil, err
	}
	// Without wakes it polls.
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		job, err := b.Job(ctx, queue, id)
		if err != nil || job.State.Finished() {
			return job, err
		}
		timer := time.NewTimer(pause + rand.N(pause/4+1))
		err = awaitFinish(ctx, wakes, timer.C, id)
		timer.Stop()
		if err != nil {
			return nil, fmt.Errorf("wait for job %q in queue %q: %w", id, queue, err)
		}
	}
}

func awaitFinish(ctx context.Context, wakes <-chan Wake, timeout <-chan time.Time, id string) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout:
			return nil
		case w, ok := <-wakes:
			if !ok {
				wakes = nil // no more hints: poll
			} else if w.Kind == WakeFinished && w.JobID == id {
				return nil
			}
		}
	}
}

// Follow yields the events of a queue in order, those kept first, and waits for
// more until ctx ends or the loop breaks. An error ends the sequence; the Token
// of the last event continues it.
func Follow(ctx context.Context, r EventReader, f EventFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := checkGiven("event reader", r); err != nil {
			yield(Event{}, err)
			return
		}
		pause := pollMin
		for {
			page, err := r.Events(ctx, f)
			if err != nil {
				if ctx.Err() == nil {
					yield(Event{}, err)
				}
				return
			}
			f.After = page.Next
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			if pause = min(2*pause, pollMax); len(page.Events) > 0 {
				pause = pollMin
				continue
			}
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	}
}
