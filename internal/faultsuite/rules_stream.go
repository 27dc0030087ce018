package faultsuite

import "github.com/rota-queue/rota/core"

// life is what the stream tells of a job.
type life struct {
	enqueued, started, released int
	ends                        []core.State
}

// checkStream compares the events of each job with what it shows: published once,
// ended once, and each start an attempt but those that were given back.
func checkStream(b *book) {
	if b.Stream == nil {
		return
	}
	lives := map[string]*life{}
	for _, e := range b.Stream {
		l := lives[e.JobID]
		if l == nil {
			l = &life{}
			lives[e.JobID] = l
		}
		switch e.Kind {
		case core.EventEnqueued:
			l.enqueued++
		case core.EventStarted:
			l.started++
			if len(l.ends) > 0 {
				b.breach("events", e.JobID, "job %s was started after it was %v", e.JobID, l.ends)
			}
		case core.EventReleased:
			l.released++
		case core.EventCompleted:
			l.ends = append(l.ends, core.StateCompleted)
		case core.EventDead:
			l.ends = append(l.ends, core.StateDead)
		case core.EventCancelled:
			l.ends = append(l.ends, core.StateCancelled)
		}
	}
	for id, l := range lives {
		job, j := b.stored[id], b.jobs[id]
		switch {
		case j == nil:
			b.breach("events", id, "the stream tells of job %s, which nobody published", id)
		case job == nil:
			if b.Kept {
				b.breach("events", id, "the stream tells of job %s, which the store does not hold", id)
			}
		case len(l.ends) != 1 || l.ends[0] != job.State:
			b.breach("events", id, "job %s is %s, the stream says %v", id, job.State, l.ends)
		case l.enqueued != 1:
			b.breach("events", id, "job %s was enqueued %d times", id, l.enqueued)
		case l.started-l.released != job.Attempt:
			b.breach("events", id, "job %s has %d attempts, was started %d times and given back %d times",
				id, job.Attempt, l.started, l.released)
		case l.started < len(j.leases):
			b.breach("events", id, "job %s was started %d times and claimed %d times", id, l.started, len(j.leases))
		}
	}
	for id := range b.stored {
		if lives[id] == nil {
			b.breach("events", id, "the stream tells nothing of job %s", id)
		}
	}
}
