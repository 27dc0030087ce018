package faultsuite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// publisherSpec says what a publisher process does: it publishes batches of jobs
// to random groups until it is told to end.
type publisherSpec struct {
	Name   string // starts the ids of its jobs
	Queue  string
	Groups []string
	// Batch is the greatest number of jobs in a call; Pause the longest time between
	// two calls that are quick.
	Batch int
	Pause time.Duration
	// Insist publishes a batch again, with the same ids, until it is acknowledged.
	// The store must keep completed jobs, so that it knows their ids.
	Insist bool
	// Plain publishes no delays and few attempts' worth of policies: for tests
	// whose clock steps.
	Plain bool
}

// Groups whose names start so have policies of their own.
const (
	skipGroup = "skip-" // failed jobs stand aside
	holdGroup = "hold-" // dead jobs hold the group
)

// storeTimeout bounds one call of a child, so that a frozen server can not hold
// it for longer than the suite waits.
const storeTimeout = 2 * time.Second

func publisherMain(c child, spec publisherSpec) error {
	p := &publisher{child: c, spec: spec}
	for batch := 1; c.ctx.Err() == nil; batch++ {
		start := time.Now()
		p.publish(batch)
		// Longer where calls take long: else a busy machine gets more jobs than it can do,
		// and the storm is mostly the draining of them.
		pause := rand.N(spec.Pause+1) + min(3*time.Since(start), 8*stormPause)
		select {
		case <-c.ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

type publisher struct {
	child
	spec publisherSpec
	n    int
}

// publish makes one batch and publishes it, once or until it is acknowledged.
func (p *publisher) publish(batch int) {
	jobs := make([]core.NewJob, 1+rand.N(p.spec.Batch))
	for i := range jobs {
		jobs[i] = p.job()
		p.log.write(Event{Kind: Try, Done: now(), Job: jobs[i].ID, Group: jobs[i].Group, Batch: batch})
	}
	for {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), storeTimeout)
		sent := now()
		results, err := p.backend.Publish(ctx, core.PublishRequest{Jobs: jobs})
		cancel()
		if err == nil {
			p.acknowledge(jobs, results, sent)
			return
		}
		if !p.spec.Insist {
			return
		}
		// Also when told to end: the batch under way is brought to its end.
		time.Sleep(10*time.Millisecond + rand.N(20*time.Millisecond))
	}
}

func (p *publisher) acknowledge(jobs []core.NewJob, results []core.PublishResult, sent int64) {
	done := now()
	for i, r := range results {
		e := Event{Kind: Acked, Sent: sent, Done: done, Job: jobs[i].ID, Group: jobs[i].Group, Seq: r.Seq}
		switch {
		case p.spec.Insist && errors.Is(r.Err, core.ErrIDTaken): // an earlier try of ours
		case r.Err != nil:
			e.Kind, e.Text = Bad, fmt.Sprintf("publish of %s: %v", jobs[i].ID, r.Err)
		case r.ID != jobs[i].ID || r.Seq == 0:
			e.Kind, e.Text = Bad, fmt.Sprintf("publish of %s gave id %q and Seq %d", jobs[i].ID, r.ID, r.Seq)
		}
		p.log.write(e)
	}
}

// job makes a job: mostly in a group, sometimes with few attempts, of a random
// priority, or late.
func (p *publisher) job() core.NewJob {
	p.n++
	job := core.NewJob{Queue: p.spec.Queue, ID: fmt.Sprintf("%s-%d", p.spec.Name, p.n), MaxAttempts: 40}
	job.Payload = []byte(job.ID)
	if rand.N(5) > 0 {
		job.Group = p.spec.Groups[rand.N(len(p.spec.Groups))]
	}
	if rand.N(4) == 0 {
		job.Priority = rand.N(core.MaxPriority + 1)
	}
	if p.spec.Plain {
		return job
	}
	switch {
	case strings.HasPrefix(job.Group, skipGroup):
		job.OnFailure = core.Skip
	case strings.HasPrefix(job.Group, holdGroup):
		job.OnExhausted = core.Hold
	}
	if rand.N(5) == 0 {
		job.MaxAttempts = 1 + rand.N(3)
	}
	if rand.N(10) == 0 {
		// Strict keeps its place, so the order of the group is that of publishing.
		job.Delay, job.Scheduling = 1+rand.N(50*time.Millisecond), core.Strict
	}
	return job
}

// groupNames makes the groups of a storm.
func groupNames(plain bool) []string {
	var names []string
	for i := range 16 {
		names = append(names, fmt.Sprintf("g%02d", i))
	}
	if plain {
		return names
	}
	for i := range 4 {
		names = append(names, fmt.Sprintf("%s%d", skipGroup, i))
	}
	return append(names, holdGroup+"0", holdGroup+"1")
}
