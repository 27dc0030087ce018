package backendtest

import (
	"fmt"
	"slices"
	"sync"

	"github.com/rota-queue/rota/core"
)

var orderTests = []test{
	{"OnePublisher", testOnePublisher},
	{"Batch", testBatchOrder},
	{"AcrossHandles", testOrderAcrossHandles},
	{"ManyPublishers", testManyPublishers},
	{"SeqGrows", testSeqGrows},
	{"SeqGrowsOverDeletion", testSeqGrowsOverDeletion},
	{"OldBeforeNewOnEveryTier", testOrderInEveryTier},
}

func testOnePublisher(f *fixture) {
	ids := names("j", 50)
	f.add("g", ids...)
	f.wantServed(ids...)
}

// A batch gives places in its own order, in each group for itself.
func testBatchOrder(f *fixture) {
	var batch []core.NewJob
	want := map[string][]string{}
	for i := range 60 {
		group := fmt.Sprintf("g%d", i%3)
		id := fmt.Sprintf("j%03d", (i*37)%60) // ids do not sort like places
		batch = append(batch, core.NewJob{Group: group, ID: id})
		want[group] = append(want[group], id)
	}
	results := f.publish(batch...)
	for i := 1; i < len(results); i++ {
		if results[i].Seq <= results[i-1].Seq {
			f.Fatalf("job %d of the batch has Seq %d, the one before it %d", i, results[i].Seq, results[i-1].Seq)
		}
	}
	got := map[string][]string{}
	for _, id := range f.serve() {
		i := slices.IndexFunc(batch, func(j core.NewJob) bool { return j.ID == id })
		got[batch[i].Group] = append(got[batch[i].Group], id)
	}
	equal(f, "order by group", got, want)
}

// A publish that happens after another was acknowledged is behind it, also when
// two clients take turns and while others serve the group.
func testOrderAcrossHandles(f *fixture) {
	handles := []*fixture{f, f.otherHandle()}
	ids := names("j", 30)
	var served []string
	for i, id := range ids {
		handles[i%2].add("g", id)
		if i%3 == 0 {
			leases := handles[(i+1)%2].claimUpTo(1)
			served = append(served, jobIDs(leases)...)
			handles[i%2].complete(leases...)
		}
	}
	equal(f, "jobs in the order they were served", append(served, f.serve()...), ids)
}

// Of many publishers at once each finds its own jobs in its own order.
func testManyPublishers(f *fixture) {
	const publishers, jobs = 6, 15
	handles := []core.Backend{f.b, f.open()}
	var mu sync.Mutex
	seqs := map[string]int64{}
	f.together(publishers, func(p int) error {
		for i := range jobs {
			res, err := core.Publish(f.ctx, handles[p%2], core.NewJob{
				Queue: f.queue, Group: "g", ID: fmt.Sprintf("p%d-%03d", p, i),
			})
			if err != nil {
				return err
			}
			mu.Lock()
			seqs[res.ID] = res.Seq
			mu.Unlock()
		}
		return nil
	})
	served := f.serve()
	equal(f, "number of jobs served", len(served), publishers*jobs)
	if !slices.IsSortedFunc(served, func(a, b string) int { return int(seqs[a] - seqs[b]) }) {
		f.Errorf("served in another order than that of Seq: %v", served)
	}
	last := map[string]string{}
	for _, id := range served {
		if p := id[:2]; id <= last[p] {
			f.Fatalf("job %s started after %s of the same publisher", id, last[p])
		} else {
			last[p] = id
		}
	}
}

// Seq is unique and growing within the queue and never behind the clock.
func testSeqGrows(f *fixture) {
	handles := []*fixture{f, f.otherHandle()}
	last := f.now().UnixMicro() - 1
	for i := range 20 {
		results := handles[i%2].publish(make([]core.NewJob, 3)...)
		for _, res := range results {
			if res.Seq <= last {
				f.Fatalf("Seq %d follows %d", res.Seq, last)
			}
			last = res.Seq
			equal(f, "Seq of the stored job", f.job(res.ID).Seq, res.Seq)
		}
	}
}

func testSeqGrowsOverDeletion(f *fixture) {
	// A batch runs ahead of the clock: one microsecond for each job.
	results := f.publish(make([]core.NewJob, f.h.scale(2000))...)
	last := results[len(results)-1].Seq
	for range 3 {
		f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		// The clock is all a store needs to remember: wait for it.
		f.eventually("the clock passes the last Seq", func() bool { return f.now().UnixMicro() > last })
		seq := f.put(core.NewJob{}).Seq
		if seq <= last {
			f.Fatalf("Seq %d follows %d after the queue was deleted", seq, last)
		}
		last = seq
	}
}

// Order is kept whatever tier the jobs ask for: the group's stands.
func testOrderInEveryTier(f *fixture) {
	ids := names("j", 10)
	for i, id := range ids {
		f.put(core.NewJob{Group: "g", ID: id, Priority: i % 5})
	}
	f.wantServed(ids...)
}
