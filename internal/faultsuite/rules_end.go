package faultsuite

import (
	"slices"

	"github.com/rota-queue/rota/core"
)

// checkEndings: a job ends once and is not handed out after that.
func checkEndings(b *book) {
	for _, j := range b.order {
		var end *leaseRecord
		for _, r := range j.leases {
			if end != nil {
				b.breach("doubled", j.id, "job %s was handed out with fence %d after it ended with fence %d", j.id, r.Fence, end.Fence)
			}
			accepted := 0
			for _, s := range r.settles {
				if s.accepted() {
					accepted++
				}
				if s.ended() {
					end = r
				}
			}
			if accepted > 1 {
				b.breach("doubled", j.id, "the lease of job %s with fence %d was settled %d times", j.id, r.Fence, accepted)
			}
		}
	}
}

// checkJobs compares what the store shows with what it acknowledged.
func checkJobs(b *book) {
	for _, j := range b.order {
		job := b.stored[j.id]
		if job == nil {
			b.checkMissing(j)
			continue
		}
		if !job.State.Finished() {
			b.breach("stranded", j.id, "job %s is %s when nothing is left to claim", j.id, job.State)
			continue
		}
		for _, r := range j.leases {
			for _, s := range r.settles {
				if s.ended() && s.State != job.State {
					b.breach("state", j.id, "job %s is %s, but its %s was acknowledged as %s", j.id, job.State, s.Action, s.State)
				}
			}
		}
		if !asked(j, job) {
			b.breach("state", j.id, "job %s is %s, and nobody asked for that", j.id, job.State)
		}
	}
}

// checkMissing: a job that the store does not hold was never stored, or completed
// and was not kept.
func (b *book) checkMissing(j *jobRecord) {
	if !b.known(j) {
		return
	}
	last := j.last()
	if !b.Kept && last != nil && last.may(core.Complete) {
		return
	}
	b.breach("lost", j.id, "job %s is not in the store (acknowledged: %t, leases: %d)", j.id, j.acked, len(j.leases))
}

// asked tells whether the last lease can have brought the job to its end.
func asked(j *jobRecord, job *core.Job) bool {
	last := j.last()
	if job.State == core.StateDead && job.MaxAttempts != core.Unlimited && job.Attempt >= job.MaxAttempts {
		return true
	}
	if last == nil {
		return false
	}
	switch job.State {
	case core.StateCompleted:
		return last.may(core.Complete)
	case core.StateDead:
		return last.may(core.Dead)
	}
	return last.may(core.Cancel)
}

// checkCounts compares the store's counts with what it holds, and has held.
func checkCounts(b *book) {
	held := map[core.State]int64{}
	for _, job := range b.Jobs {
		held[job.State]++
	}
	for _, s := range core.JobStates() {
		if b.Info.Jobs[s] != held[s] {
			b.breach("counts", "", "the queue counts %d jobs in state %s and lists %d", b.Info.Jobs[s], s, held[s])
		}
	}
	if b.Info.ByPriority != [core.MaxPriority + 1]int64{} {
		b.breach("counts", "", "the queue counts unfinished jobs by priority: %v", b.Info.ByPriority)
	}
	if b.Info.Groups != 0 {
		b.breach("counts", "", "the queue counts %d groups", b.Info.Groups)
	}
	completed := held[core.StateCompleted]
	for _, j := range b.order {
		if b.stored[j.id] == nil && b.known(j) {
			completed++
		}
	}
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"completed", b.Totals.Completed, completed},
		{"dead", b.Totals.Dead, held[core.StateDead]},
		{"cancelled", b.Totals.Cancelled, held[core.StateCancelled]},
	} {
		if c.got != c.want {
			b.breach("counts", "", "the statistics count %d %s jobs, there were %d", c.got, c.what, c.want)
		}
	}
}

// first gives the first violation of each rule, and how many there are in all.
func first(violations []Violation) ([]Violation, int) {
	var some []Violation
	for _, v := range violations {
		if !slices.ContainsFunc(some, func(s Violation) bool { return s.Rule == v.Rule }) {
			some = append(some, v)
		}
	}
	return some, len(violations)
}
