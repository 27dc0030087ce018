package faultsuite

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// Ledger is all that is known of the life of a queue on which nobody but the
// suite's publishers and workers acted: what they wrote, and what the store shows
// when nothing is left to do.
type Ledger struct {
	Events []Event
	// Jobs are all jobs that the store holds.
	Jobs []*core.Job
	// Info and Totals (of all days) are the store's own counts.
	Info   core.QueueInfo
	Totals core.DayStats
	// Stream are all events of the queue, nil when it writes none. The backend
	// wrote each in the step it tells of, so they know what no client was told.
	Stream []core.Event
	// Kept: the queue keeps completed jobs. Else they are gone as they complete;
	// dead and cancelled ones are kept in any case.
	Kept bool
	// Steps are when the server's clock was set forward: leases may have ended then.
	Steps []int64
}

// Violation is one breach of a rule.
type Violation struct {
	Rule string // such as "order"
	Job  string // that it is about, if it is about one
	Text string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// story is all that the ledger has of a job, for people.
func (l *Ledger) story(job string) string {
	var own []Event
	for _, e := range l.Events {
		if e.Job == job {
			own = append(own, e)
		}
	}
	at := func(e Event) int64 { return max(e.Done, e.Sent) }
	slices.SortStableFunc(own, func(x, y Event) int { return cmp.Compare(at(x), at(y)) })
	var text strings.Builder
	for _, e := range own {
		line, _ := json.Marshal(e) // of plain values: it can not fail
		fmt.Fprintf(&text, "\t%s %s\n", e.Proc, line)
	}
	for _, e := range l.Stream {
		if e.JobID == job {
			fmt.Fprintf(&text, "\tstream: %s %s at %s, attempt %d, %s %s\n", e.Token, e.Kind, e.At.Format(time.StampMicro), e.Attempt, e.Worker, e.Error)
		}
	}
	for _, j := range l.Jobs {
		if j.ID == job {
			fmt.Fprintf(&text, "\tstored: %+v\n", *j)
		}
	}
	return text.String()
}

// Check gives all breaches of the rules in a ledger:
//
//   - bad: a process saw what must never happen.
//   - alien: a job that nobody published.
//   - lost: an acknowledged job has neither an end nor a place in the store.
//   - batch: a call of a publisher was stored in part.
//   - doubled: a job ended twice, or was handed out after its end.
//   - order: Seqs against the order of publishing, or leases of a group against
//     the order of Seqs.
//   - exclusive: a group was leased while a lease of it was alive.
//   - stale: a write was accepted though a later lease had been granted before it
//     was sent.
//   - fence: fences of a lane that repeat or do not grow, or a token given twice.
//   - attempts: an attempt that was not counted.
//   - state: the store shows another end than it acknowledged, or one that nobody
//     asked for.
//   - stranded: something unfinished is left.
//   - events: the stream tells of another life than the job shows.
//   - counts: the store's counts are not those of what it holds.
func (l *Ledger) Check() []Violation {
	b := newBook(l)
	for _, rule := range []func(*book){
		checkAliens, checkBatches, checkPublishOrder,
		checkLanes, checkAttempts, checkEndings,
		checkJobs, checkStream, checkCounts,
	} {
		rule(b)
	}
	return b.violations
}

// book is a ledger sorted out.
type book struct {
	*Ledger
	jobs       map[string]*jobRecord
	order      []*jobRecord // as published first seen
	lanes      map[string][]*leaseRecord
	leases     map[string]*leaseRecord // by token
	stored     map[string]*core.Job
	violations []Violation
}

// jobRecord is what happened to a job, as far as its clients know.
type jobRecord struct {
	id, group string
	batch     string // names the publisher's call
	tried     bool
	acked     bool
	triedAt   int64 // before this nobody knew it
	ackedAt   int64
	seq       int64          // 0: nobody knows
	leases    []*leaseRecord // in the order of fences
}

// leaseRecord is what happened under a lease.
type leaseRecord struct {
	Event                 // of kind Claimed
	settles []*settleCall // in the order of calls
	writes  []Event       // accepted extensions and saves
	next    int64         // when the first claim of a later lease of the lane had returned; farFuture: none
}

const farFuture = 1<<63 - 1

// settleCall is one try to settle a lease.
type settleCall struct {
	Event
	open bool // it may have been accepted or not
}

func (s *settleCall) accepted() bool { return !s.open && s.Err == "" }
func (s *settleCall) possible() bool { return s.open || s.Err == "" }

// ended tells that the store acknowledged the job's end.
func (s *settleCall) ended() bool {
	return s.accepted() && (s.State.Finished() || s.State == core.StateGone)
}

// may reports whether a call with one of the actions was or may have been accepted.
func (r *leaseRecord) may(actions ...core.Action) bool {
	return slices.ContainsFunc(r.settles, func(s *settleCall) bool {
		return s.possible() && slices.Contains(actions, s.Action)
	})
}

// last is the job's lease with the greatest fence, or nil.
func (j *jobRecord) last() *leaseRecord {
	if len(j.leases) == 0 {
		return nil
	}
	return j.leases[len(j.leases)-1]
}

func (b *book) breach(rule, job, format string, args ...any) {
	b.violations = append(b.violations, Violation{rule, job, fmt.Sprintf(format, args...)})
}

func newBook(l *Ledger) *book {
	b := &book{
		Ledger: l, jobs: map[string]*jobRecord{}, lanes: map[string][]*leaseRecord{},
		leases: map[string]*leaseRecord{}, stored: map[string]*core.Job{},
	}
	calls := map[string]*settleCall{}
	for _, e := range l.Events {
		b.enter(e)
	}
	for _, e := range l.Events { // settles may come before claims: lines of two processes
		b.enterWrite(e, calls)
	}
	for _, job := range l.Jobs {
		if b.stored[job.ID] != nil {
			b.breach("doubled", job.ID, "the store lists job %s twice", job.ID)
		}
		b.stored[job.ID] = job
		j := b.job(job.ID, job.Group)
		if j.seq == 0 {
			j.seq = job.Seq
		}
	}
	for _, lane := range b.lanes {
		slices.SortStableFunc(lane, func(x, y *leaseRecord) int { return cmp.Compare(x.Fence, y.Fence) })
		first := int64(farFuture)
		for _, r := range slices.Backward(lane) {
			r.next = first
			first = min(first, r.Done)
		}
		for _, r := range lane {
			j := b.jobs[r.Job]
			j.leases = append(j.leases, r)
		}
	}
	return b
}

func (b *book) job(id, group string) *jobRecord {
	j := b.jobs[id]
	if j == nil {
		j = &jobRecord{id: id, group: group}
		b.jobs[id] = j
		b.order = append(b.order, j)
	}
	return j
}

// enter takes in what an event says of a job, and the leases.
func (b *book) enter(e Event) {
	switch e.Kind {
	case Bad:
		b.breach("bad", "", "%s: %s", e.Proc, e.Text)
	case Try:
		j := b.job(e.Job, e.Group)
		j.tried, j.triedAt, j.batch = true, e.Done, fmt.Sprint(e.Proc, " ", e.Batch)
	case Acked:
		j := b.job(e.Job, e.Group)
		j.acked, j.ackedAt = true, e.Done
		if e.Seq != 0 {
			j.seq = e.Seq
		}
	case Claimed:
		j := b.job(e.Job, e.Group)
		if j.seq != 0 && j.seq != e.Seq {
			b.breach("order", j.id, "job %s has Seq %d and Seq %d", j.id, j.seq, e.Seq)
		}
		j.seq = e.Seq
		if b.leases[e.Token] != nil {
			b.breach("fence", e.Job, "token %q was given to job %s and to job %s", e.Token, b.leases[e.Token].Job, e.Job)
			return
		}
		r := &leaseRecord{Event: e}
		b.leases[e.Token] = r
		lane := laneOf(e)
		b.lanes[lane] = append(b.lanes[lane], r)
	}
}

// laneOf names what jobs run in one at a time.
func laneOf(e Event) string {
	if e.Group == "" {
		return "job " + e.Job
	}
	return "group " + e.Group
}

// enterWrite takes in what was done under a lease.
func (b *book) enterWrite(e Event, calls map[string]*settleCall) {
	if e.Kind != Settling && e.Kind != Settled && e.Kind != Wrote {
		return
	}
	r := b.leases[e.Token]
	if r == nil {
		b.breach("bad", e.Job, "%s wrote to job %s under a token that nobody claimed", e.Proc, e.Job)
		return
	}
	key := fmt.Sprint(e.Token, " ", e.Sent)
	switch {
	case e.Kind == Settling:
		s := &settleCall{Event: e, open: true}
		calls[key] = s
		r.settles = append(r.settles, s)
	case e.Kind == Settled:
		if s := calls[key]; s != nil {
			*s = settleCall{Event: e, open: strings.HasPrefix(e.Err, Unknown)}
		}
	case e.Err == "":
		r.writes = append(r.writes, e)
	}
}
