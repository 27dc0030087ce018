package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

// redisFairness floods one group and measures, in rounds, how long the others
// wait: a round is as many starts as there are groups with work. Then it keeps
// new one-job groups coming and looks whether the old backlog still advances.
func redisFairness(ctx context.Context, s settings, r *report) error {
	flood := s.pick(50_000, 2_000)
	return withRedis(func(server *redisServer) error {
		err := server.withBackend(ctx, func(b core.Backend) error { return floodOne(ctx, b, flood, r) })
		if err != nil {
			return err
		}
		return server.withBackend(ctx, func(b core.Backend) error { return streamOfNew(ctx, b, s, r) })
	})
}

// floodOne: the flooding group is published first, then 99 groups with 5 jobs.
func floodOne(ctx context.Context, b core.Backend, flood int, r *report) error {
	const small, each = 99, 5
	if err := publish(ctx, b, "bench", flood, 1, 1_000); err != nil { // all in group-0
		return err
	}
	for g := range small {
		jobs := make([]core.NewJob, each)
		for i := range jobs {
			jobs[i] = core.NewJob{Queue: "bench", Group: fmt.Sprintf("small-%d", g)}
		}
		if _, err := b.Publish(ctx, core.PublishRequest{Jobs: jobs}); err != nil {
			return err
		}
	}
	// One slot makes the order of starts the order of turns. When the k-th job of a
	// small group starts, a perfectly fair server has started k jobs of each group.
	var starts, floodStarts int
	var worst float64
	seen := map[string]int{}
	done := make(chan struct{})
	w, err := worker.New(b, worker.Config{
		Queues: []worker.Queue{{Name: "bench"}}, Concurrency: 1,
		Handler: worker.HandlerFunc(func(_ context.Context, t *worker.Task) error {
			starts++
			group := t.Job.Group
			if seen[group]++; group == "group-0" {
				floodStarts++
				return nil
			}
			worst = max(worst, float64(starts)/float64(seen[group]*(small+1)))
			if len(seen) >= small && starts-floodStarts == small*each {
				close(done)
			}
			return nil
		}),
	})
	if err != nil {
		return err
	}
	if err := w.Start(ctx); err != nil {
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := w.Stop(ctx); err != nil {
		return err
	}
	r.series("starts of the flooding group meanwhile", "jobs", float64(floodStarts))
	r.atMost("longest wait of a small group, in rounds per job", 1.5, worst)
	return nil
}

// streamOfNew keeps publishing groups of one job faster than one slot serves
// them, for longer than the head start, and counts what the old backlog gets.
func streamOfNew(ctx context.Context, b core.Backend, s settings, r *report) error {
	head := time.Duration(s.pick(2, 1)) * time.Second
	if err := b.Configure(ctx, "bench", core.QueueConfig{HeadStart: head}); err != nil {
		return err
	}
	if err := publish(ctx, b, "bench", 2_000, 20, 1_000); err != nil {
		return err
	}
	var old, fresh atomic.Int64
	w, err := worker.New(b, worker.Config{
		Queues: []worker.Queue{{Name: "bench"}}, Concurrency: 1,
		Handler: worker.HandlerFunc(func(_ context.Context, t *worker.Task) error {
			if t.Job.Kind == "bench" {
				old.Add(1)
			} else {
				fresh.Add(1)
			}
			time.Sleep(2 * time.Millisecond)
			return nil
		}),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*head)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	if err := w.Start(ctx); err != nil {
		return err
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = core.Publish(ctx, b, core.NewJob{Queue: "bench", Kind: "new", Group: fmt.Sprintf("new-%d", i)})
			time.Sleep(time.Millisecond)
		}
	})
	<-ctx.Done()
	if err := w.Stop(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	r.series("new one-job groups served", "jobs", float64(fresh.Load()))
	r.atLeast("jobs of the old backlog served beside them", 20, float64(old.Load()))
	return nil
}
