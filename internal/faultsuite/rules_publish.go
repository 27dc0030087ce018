package faultsuite

import (
	"cmp"
	"slices"
	"strings"
)

// checkAliens: every job was published by somebody, into that group.
func checkAliens(b *book) {
	for _, j := range b.order {
		if !j.tried {
			b.breach("alien", j.id, "nobody published job %s", j.id)
		}
	}
	for _, r := range b.leases {
		if j := b.jobs[r.Job]; j.tried && r.Group != j.group {
			b.breach("alien", j.id, "job %s was published to group %q and claimed in group %q", j.id, j.group, r.Group)
		}
	}
	for _, job := range b.Jobs {
		if j := b.jobs[job.ID]; j.tried && job.Group != j.group {
			b.breach("alien", j.id, "job %s was published to group %q and is stored in group %q", j.id, j.group, job.Group)
		}
	}
}

// known tells that the store has or had the job.
func (b *book) known(j *jobRecord) bool {
	return j.acked || len(j.leases) > 0 || b.stored[j.id] != nil
}

// checkBatches: a batch to one queue is stored as a whole or not at all.
func checkBatches(b *book) {
	known := map[string]map[bool]string{}
	for _, j := range b.order {
		if !j.tried {
			continue
		}
		if known[j.batch] == nil {
			known[j.batch] = map[bool]string{}
		}
		known[j.batch][b.known(j)] = j.id
	}
	for batch, jobs := range known {
		if len(jobs) > 1 {
			b.breach("batch", jobs[false], "of batch %s the store has job %s but not job %s", batch, jobs[true], jobs[false])
		}
	}
}

// checkPublishOrder: a job has a greater Seq than every job that was acknowledged
// before it was first sent, and than those before it in its batch.
func checkPublishOrder(b *book) {
	var jobs, acked []*jobRecord
	for _, j := range b.order {
		if j.seq != 0 && j.tried {
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(x, y *jobRecord) int { return cmp.Compare(x.triedAt, y.triedAt) })
	seqs := map[int64]*jobRecord{}
	batch := map[string]*jobRecord{}
	for _, j := range jobs {
		if other := seqs[j.seq]; other != nil {
			b.breach("order", j.id, "jobs %s and %s have the same Seq %d", other.id, j.id, j.seq)
		}
		seqs[j.seq] = j
		if other := batch[j.batch]; other != nil && other.seq > j.seq {
			b.breach("order", j.id, "jobs %s and %s of one batch have the Seqs %d and %d", other.id, j.id, other.seq, j.seq)
		}
		batch[j.batch] = j
		if j.acked {
			acked = append(acked, j)
		}
	}
	slices.SortFunc(acked, func(x, y *jobRecord) int { return cmp.Compare(x.ackedAt, y.ackedAt) })
	var newest *jobRecord // of those acknowledged so far
	for _, j := range jobs {
		for len(acked) > 0 && acked[0].ackedAt < j.triedAt {
			if newest == nil || acked[0].seq > newest.seq {
				newest = acked[0]
			}
			acked = acked[1:]
		}
		if newest != nil && newest.seq > j.seq {
			b.breach("order", j.id, "job %s was acknowledged with Seq %d before job %s was published with Seq %d",
				newest.id, newest.seq, j.id, j.seq)
		}
	}
}

// skips tells that failed jobs of the group stand aside, so that others may
// overtake them.
func skips(group string) bool { return strings.HasPrefix(group, skipGroup) }
