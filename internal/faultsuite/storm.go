package faultsuite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// storm is a queue on a private server with publisher and worker processes, and
// the history of what they did. Its methods are for the test's goroutine.
type storm struct {
	*testing.T
	store   Store
	server  Server
	url     string       // for the processes
	backend core.Backend // the test's own handle
	ctx     context.Context
	queue   string
	history *history

	kept  bool    // completed jobs are kept
	steps []int64 // when the server's clock was set forward

	spawned    int
	workers    []*process
	publishers []*process
}

// process is a child of a storm.
type process struct {
	*testserver.ChildProcess
	name string
	role string
	spec any
}

// newStorm configures a queue. A queue that keeps completed jobs shows in the end
// what became of each; one that does not is the case that backends make fast.
func newStorm(t *testing.T, store Store, server Server, kept bool) *storm {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	s := &storm{T: t, store: store, server: server, ctx: ctx, url: server.URL(), queue: "faults", kept: kept}
	s.history = newHistory(t)
	s.backend = open(t, store.Open, server.URL())
	cfg := core.QueueConfig{HeadStart: 100 * time.Millisecond}
	if kept {
		// Longer than any step of a clock.
		cfg.CompletedRetention = 30 * 24 * time.Hour
		cfg.CancelledRetention = 30 * 24 * time.Hour
		cfg.EventTTL = 30 * 24 * time.Hour
	}
	s.check(s.backend.Configure(ctx, s.queue, cfg))
	return s
}

func (s *storm) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *storm) start(role string, spec any) *process {
	s.Helper()
	s.spawned++
	p := &process{name: fmt.Sprintf("%s%d", role[:1], s.spawned), role: role}
	if pub, ok := spec.(publisherSpec); ok {
		pub.Name, pub.Queue = p.name, s.queue
		spec = pub
	}
	if w, ok := spec.(workerSpec); ok {
		w.Queue = s.queue
		spec = w
	}
	p.spec = spec
	p.ChildProcess = startChild(s, s.store.Name, role, s.url, spec)
	s.history.follow(p.name, p.ChildProcess)
	return p
}

// addWorker and addPublisher start a process that belongs to the storm.
func (s *storm) addWorker(spec workerSpec) *process {
	s.Helper()
	p := s.start("worker", spec)
	s.workers = append(s.workers, p)
	return p
}

func (s *storm) addPublisher(spec publisherSpec) *process {
	s.Helper()
	p := s.start("publisher", spec)
	s.publishers = append(s.publishers, p)
	return p
}

// replace kills a random one of the processes and starts another in its place.
func (s *storm) replace(list []*process) {
	s.Helper()
	i := rand.N(len(list))
	list[i].Kill()
	list[i] = s.start(list[i].role, list[i].spec)
}

// pass lets the storm go on for about d.
func (s *storm) pass(d time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}

// end asks a process to end and waits until it has. Whether it ended well is
// looked at by testserver.
func (s *storm) end(p *process) {
	s.Helper()
	s.history.await(p.name+" is ready", 0, func(e Event) bool { return e.Proc == p.name && e.Text == ready })
	if err := p.Signal(syscall.SIGTERM); err != nil {
		s.Error(err)
	}
	if err := p.Wait(); err != nil {
		s.Errorf("%s did not end well: %v", p.name, err)
	}
}

// settleDown ends the publishers, kills the workers, looks whether anything is
// stranded, and lets a last worker drain the queue.
func (s *storm) settleDown() {
	s.Helper()
	for _, p := range s.publishers {
		s.end(p)
	}
	for _, w := range s.workers {
		w.Kill()
	}
	s.lookForStranded()
	last := s.start("worker", workerSpec{Concurrency: 16, Lease: time.Second, Handler: "prompt"})
	s.drain()
	s.end(last)
}

// drain waits until nothing unfinished is left. It gives up when the number of
// unfinished jobs has not fallen for a while.
func (s *storm) drain() {
	s.Helper()
	least, deadline := s.unfinished(), time.Now().Add(patience)
	for !s.drained() {
		time.Sleep(10 * time.Millisecond)
		if n := s.unfinished(); n < least {
			least, deadline = n, time.Now().Add(patience)
		}
		if time.Now().After(deadline) {
			s.lookForStranded()
			info, _ := s.backend.QueueInfo(s.ctx, s.queue)
			s.Fatalf("the queue did not drain within %v: %v, groups %+v", patience, info.Jobs, s.groups())
		}
	}
}

// drained releases held groups, as a person would, and tells whether nothing
// unfinished is left.
func (s *storm) drained() bool {
	left := s.unfinished()
	for _, g := range s.groups() {
		if g.Held {
			s.check(s.backend.ActOnGroup(s.ctx, s.queue, g.Group, core.ReleaseGroup))
		}
	}
	return left == 0
}

func (s *storm) unfinished() int64 {
	s.Helper()
	info, err := s.backend.QueueInfo(s.ctx, s.queue)
	s.check(err)
	return info.Jobs[core.StatePending] + info.Jobs[core.StateScheduled] +
		info.Jobs[core.StateRunning] + info.Jobs[core.StateRetrying]
}

func (s *storm) groups() []core.GroupInfo {
	s.Helper()
	var all []core.GroupInfo
	f := core.GroupFilter{Queue: s.queue, Limit: core.MaxPage}
	for {
		page, err := s.backend.Groups(s.ctx, f)
		s.check(err)
		all = append(all, page.Groups...)
		if f.Cursor = page.Next; page.Next == "" {
			return all
		}
	}
}

// jobs lists all jobs that the store holds.
func (s *storm) jobs() []*core.Job {
	s.Helper()
	var all []*core.Job
	for _, state := range core.JobStates() {
		f := core.JobFilter{Queue: s.queue, State: state, Limit: core.MaxPage}
		for {
			page, err := s.backend.Jobs(s.ctx, f)
			s.check(err)
			all = append(all, page.Jobs...)
			if f.Cursor = page.Next; page.Next == "" {
				break
			}
		}
	}
	return all
}

// lookForStranded is what a doctor would look at while nobody works.
func (s *storm) lookForStranded() {
	s.Helper()
	at, err := s.backend.Now(s.ctx)
	s.check(err)
	for _, v := range stranded(s.groups(), at.Add(5*time.Second)) { // more than any lease or delay of the storms
		s.Errorf("%v", v)
	}
}

// judge checks that the queue is empty and the ledger in order. It may be called
// once everything has ended.
func (s *storm) judge() []Event {
	s.Helper()
	for _, p := range append(s.workers, s.publishers...) {
		p.Kill()
	}
	res, err := s.backend.Claim(s.ctx, core.ClaimRequest{Queue: s.queue, Max: 100, Lease: time.Minute, Owner: "judge"})
	s.check(err)
	if len(res.Leases) > 0 || res.Next != 0 {
		s.Errorf("the last claim found %d groups, and something due in %v", len(res.Leases), res.Next)
	}
	for _, g := range s.groups() {
		s.Errorf("group %s is left: %+v", g.Group, g)
	}
	ledger := &Ledger{Events: s.history.all(), Jobs: s.jobs(), Kept: s.kept, Steps: s.steps}
	ledger.Info, err = s.backend.QueueInfo(s.ctx, s.queue)
	s.check(err)
	ledger.Totals = s.totals()
	if s.kept {
		ledger.Stream = s.stream()
	}
	violations := append(ledger.Check(), mixedUp(ledger.Jobs)...)
	some, n := first(violations)
	for _, v := range some {
		s.Errorf("%v\n%s", v, ledger.story(v.Job))
	}
	if n > len(some) {
		s.Errorf("%d violations in all", n)
	}
	s.Log(summary(ledger))
	return ledger.Events
}

// stream reads all events of the queue.
func (s *storm) stream() []core.Event {
	s.Helper()
	all := []core.Event{}
	f := core.EventFilter{Queue: s.queue, Limit: core.MaxPage}
	for {
		page, err := s.backend.Events(s.ctx, f)
		s.check(err)
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
		f.After = page.Next
	}
}

func (s *storm) totals() core.DayStats {
	s.Helper()
	days, err := s.backend.Stats(s.ctx, s.queue, core.StatsDays)
	s.check(err)
	var sum core.DayStats
	for _, d := range days {
		sum.Completed += d.Completed
		sum.Failed += d.Failed
		sum.Dead += d.Dead
		sum.Cancelled += d.Cancelled
	}
	return sum
}

// summary tells how much happened.
func summary(l *Ledger) string {
	n := map[Kind]int{}
	lost, open := 0, 0
	for _, e := range l.Events {
		n[e.Kind]++
		if e.Kind == Settled && e.Err == Lost {
			lost++
		}
	}
	open = n[Settling] - n[Settled]
	return fmt.Sprintf("%d jobs tried, %d acknowledged, %d leases, %d settles answered (%d refused), %d not, %d extensions and saves; "+
		"in the end %d completed, %d dead, %d cancelled",
		n[Try], n[Acked], n[Claimed], n[Settled], lost, open, n[Wrote],
		l.Totals.Completed, l.Totals.Dead, l.Totals.Cancelled)
}
