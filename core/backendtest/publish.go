package backendtest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

var publishTests = []test{
	{"AllFields", testAllFields},
	{"Defaults", testPublishDefaults},
	{"MadeIDs", testMadeIDs},
	{"Results", testPublishResults},
	{"SeveralQueues", testSeveralQueues},
	{"MaxAttempts", testMaxAttempts},
	{"Binary", testBinary},
	{"EmptyPayload", testEmptyPayload},
	{"LargestJob", testLargestJob},
	{"CallersOwn", testCallersOwn},
	{"WhilePaused", testPublishWhilePaused},
}

// fullJob sets every field of a job that has a place in the stored one.
func fullJob() core.NewJob {
	return core.NewJob{
		ID: "full", Kind: "mail.send", Payload: []byte("payload"), Group: "g", Priority: 3,
		Headers:     map[string]string{"trace": "1", "empty": "", "Ünï": "çödé \"'\\\n\t"},
		MaxAttempts: 7, Timeout: 90 * time.Second, Retention: 5 * time.Hour,
		Deadline:  time.Date(2150, 5, 6, 7, 8, 9, 123456000, time.UTC),
		OnFailure: core.Skip, OnExhausted: core.Hold, Scheduling: core.Strict,
		Dedup: core.Dedup{Key: "dedup"},
	}
}

// What was published is what is stored, listed and handed out.
func testAllFields(f *fixture) {
	job := fullJob()
	from := f.now()
	res := f.put(job)
	stored := f.job("full")
	f.within("CreatedAt", stored.CreatedAt, from, f.now())
	want := &core.Job{
		ID: job.ID, Queue: f.queue, Kind: job.Kind, Payload: job.Payload, Headers: job.Headers,
		Group: job.Group, Priority: job.Priority, State: core.StatePending, MaxAttempts: job.MaxAttempts,
		Seq: res.Seq, RunAt: stored.CreatedAt, Timeout: job.Timeout, Deadline: job.Deadline, Retention: job.Retention,
		OnFailure: job.OnFailure, OnExhausted: job.OnExhausted, Scheduling: job.Scheduling,
		CreatedAt: stored.CreatedAt, DedupKey: "dedup",
	}
	f.sameJob("stored", stored, want)
	f.sameJob("listed", f.list(core.JobFilter{State: core.StatePending})[0], want)
	f.sameJob("in line", f.list(core.JobFilter{Group: "g"})[0], want)

	l := f.claim("full")
	f.within("ClaimedAt", l.Job.ClaimedAt, from, f.now())
	want.State, want.Attempt, want.ClaimedAt = core.StateRunning, 1, l.Job.ClaimedAt
	want.Lease = &core.LeaseInfo{Owner: owner, Until: l.Until, Fence: l.Fence}
	f.sameJob("handed out", l.Job, want)
	f.sameJob("running", f.job("full"), want)
	f.sameJob("listed as running", f.list(core.JobFilter{State: core.StateRunning})[0], want)
	equal(f, "the lease's name", l.LeaseRef, core.LeaseRef{Queue: f.queue, Group: "g", JobID: "full", Token: l.Token})
}

// sameJob compares two jobs, times as instants and empty like nil.
func (f *fixture) sameJob(what string, got, want *core.Job) {
	f.Helper()
	a, b := plainJob(got), plainJob(want)
	if !reflect.DeepEqual(a, b) {
		f.Fatalf("the job %s is\n%+v\nwant\n%+v", what, a, b)
	}
}

// plainJob makes jobs comparable: UTC times, no empty slices and maps.
func plainJob(job *core.Job) core.Job {
	j := *job
	for _, t := range []*time.Time{&j.RunAt, &j.Deadline, &j.CreatedAt, &j.ClaimedAt, &j.FinishedAt} {
		*t = plainTime(*t)
	}
	if len(j.Payload) == 0 {
		j.Payload = nil
	}
	if len(j.Result) == 0 {
		j.Result = nil
	}
	if len(j.Headers) == 0 {
		j.Headers = nil
	}
	if len(j.Failures) == 0 {
		j.Failures = nil
	}
	j.Failures = slices.Clone(j.Failures)
	for i := range j.Failures {
		j.Failures[i].At = plainTime(j.Failures[i].At)
	}
	if j.Lease != nil {
		lease := *j.Lease
		lease.Until = plainTime(lease.Until)
		j.Lease = &lease
	}
	return j
}

func plainTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

func testPublishDefaults(f *fixture) {
	f.put(core.NewJob{ID: "a"})
	job := f.job("a")
	f.sameJob("published with nothing set", job, &core.Job{
		ID: "a", Queue: f.queue, State: core.StatePending, MaxAttempts: core.DefaultMaxAttempts,
		Seq: job.Seq, RunAt: job.CreatedAt, CreatedAt: job.CreatedAt,
	})
}

func testMadeIDs(f *fixture) {
	seen := map[string]bool{}
	results := f.publish(make([]core.NewJob, 50)...)
	results = append(results, f.otherHandle().publish(make([]core.NewJob, 50)...)...)
	for _, res := range results {
		if seen[res.ID] {
			f.Fatalf("id %q was made twice", res.ID)
		}
		seen[res.ID] = true
		if len(res.ID) != 36 || res.ID[14] != '7' {
			f.Fatalf("the made id %q is no UUIDv7", res.ID)
		}
		equal(f, "Seq", f.job(res.ID).Seq, res.Seq)
	}
}

// Each job of a batch has its own result at its own index.
func testPublishResults(f *fixture) {
	f.put(core.NewJob{ID: "taken"})
	results := f.tryPublish(
		core.NewJob{ID: "a"}, core.NewJob{ID: "taken"}, core.NewJob{Topic: uniqueName()}, core.NewJob{ID: "b"},
	)
	for i, want := range map[int]string{0: "a", 3: "b"} {
		res := results[i]
		f.check(res.Err)
		equal(f, "id", res.ID, want)
		equal(f, "queues", res.Queues, []string{f.queue})
		equal(f, "Seq", res.Seq, f.job(want).Seq)
		equal(f, "existing or replaced", res.Existing || res.Replaced, false)
	}
	f.wantErr(results[1].Err, core.ErrIDTaken)
	f.wantErr(results[2].Err, core.ErrNoBinding)
	equal(f, "jobs", f.info().Jobs[core.StatePending], 3)
}

// A batch may go to several queues, of one family or of many.
func testSeveralQueues(f *fixture) {
	family := uniqueName()
	queues := []*fixture{f, f.otherQueue(), f.onQueue(family + "@a"), f.onQueue(family + "@b")}
	var batch []core.NewJob
	for i := range 12 {
		batch = append(batch, core.NewJob{Queue: queues[i%4].queue, Group: "g", ID: fmt.Sprintf("j%02d", i)})
	}
	for i, res := range f.publish(batch...) {
		equal(f, "queues", res.Queues, []string{queues[i%4].queue})
		equal(f, "id", res.ID, batch[i].ID)
	}
	for i, q := range queues {
		q.wantServed(fmt.Sprintf("j%02d", i), fmt.Sprintf("j%02d", i+4), fmt.Sprintf("j%02d", i+8))
	}
}

func testMaxAttempts(f *fixture) {
	for _, c := range []struct{ queue, job, want int }{
		{0, 0, core.DefaultMaxAttempts},
		{3, 0, 3},
		{3, 1, 1},
		{core.Unlimited, 0, core.Unlimited},
		{core.Unlimited, 2, 2},
		{1, core.Unlimited, core.Unlimited},
	} {
		f := f.otherQueue()
		f.configure(core.QueueConfig{MaxAttempts: c.queue})
		f.put(core.NewJob{ID: "a", MaxAttempts: c.job})
		equal(f, "max attempts", f.job("a").MaxAttempts, c.want)
		// What the queue says later is for later jobs.
		f.configure(core.QueueConfig{MaxAttempts: 9})
		equal(f, "max attempts", f.job("a").MaxAttempts, c.want)
	}
}

func testBinary(f *fixture) {
	payload := make([]byte, 512)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	for i, p := range [][]byte{payload, {0}, {0xff, 0xfe, 0}, []byte("\x00nul\x00"), []byte("a\r\nb'\"\\$1{}%s"), []byte("[]"), []byte("null")} {
		id := fmt.Sprint("j", i)
		f.put(core.NewJob{ID: id, Payload: p})
		l := f.claim(id)
		f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: p}))
		for what, job := range map[string]*core.Job{"lease": l.Job, "store": f.job(id)} {
			if !bytes.Equal(job.Payload, p) {
				f.Errorf("payload in the %s is %q, want %q", what, job.Payload, p)
			}
		}
		if got := f.job(id).Result; !bytes.Equal(got, p) {
			f.Errorf("result is %q, want %q", got, p)
		}
	}
}

func testEmptyPayload(f *fixture) {
	f.put(core.NewJob{ID: "nil"})
	f.put(core.NewJob{ID: "empty", Payload: []byte{}, Headers: map[string]string{}})
	for _, l := range f.claimBatch("nil", "empty") {
		equal(f, "length of the payload", len(l.Job.Payload), 0)
		equal(f, "length of the stored payload", len(f.job(l.JobID).Payload), 0)
		equal(f, "number of headers", len(l.Job.Headers), 0)
	}
}

func testLargestJob(f *fixture) {
	limit := f.h.Limits.MaxPayload
	if limit == 0 {
		limit = core.DefaultMaxPayload
	}
	job := core.NewJob{
		ID: strings.Repeat("i", core.MaxIDLength), Kind: strings.Repeat("k", core.MaxKindLength),
		Group: strings.Repeat("g", core.MaxGroupName), Payload: bytes.Repeat([]byte{0xa5}, limit),
		Headers: map[string]string{"h": strings.Repeat("v", core.MaxHeaderBytes-1)},
		Dedup:   core.Dedup{Key: strings.Repeat("d", core.MaxDedupKey)},
	}
	f.put(job)
	l := f.claim(job.ID)
	for _, got := range []*core.Job{l.Job, f.job(job.ID)} {
		if !bytes.Equal(got.Payload, job.Payload) || !reflect.DeepEqual(got.Headers, job.Headers) ||
			got.Kind != job.Kind || got.Group != job.Group || got.DedupKey != job.Dedup.Key {
			f.Error("the largest job there may be came back different")
		}
	}
	f.complete(l)
}

// Values a caller gave or got are the caller's own.
func testCallersOwn(f *fixture) {
	job := fullJob()
	f.put(job)
	spoil := func(j *core.Job) {
		j.Payload[0] = 'X'
		j.Headers["trace"] = "spoilt"
		for i := range j.Failures {
			j.Failures[i].Error = "spoilt"
		}
		if j.Lease != nil {
			j.Lease.Owner = "spoilt"
		}
	}
	spoil(&core.Job{Payload: job.Payload, Headers: job.Headers})
	spoil(f.job("full"))
	l := f.claim("full")
	spoil(l.Job)
	f.settle(l, core.Outcome{Action: core.Retry, Error: "failed"})
	l = f.claim("full")
	spoil(l.Job)
	spoil(f.list(core.JobFilter{State: core.StateRunning})[0])
	patch := core.Patch{Result: []byte("result"), SetHeaders: map[string]string{"more": "1"}}
	f.check(f.b.Save(f.ctx, l.LeaseRef, patch))
	patch.Result[0], patch.SetHeaders["more"] = 'X', "spoilt"

	got := f.job("full")
	equal(f, "payload", string(got.Payload), "payload")
	equal(f, "header", got.Headers["trace"], "1")
	equal(f, "owner", got.Lease.Owner, owner)
	equal(f, "failure", got.Failures[0].Error, "failed")
	equal(f, "result", string(got.Result), "result")
	equal(f, "merged header", got.Headers["more"], "1")
}

func testPublishWhilePaused(f *fixture) {
	f.add("g", "a")
	_, err := f.b.PauseQueue(f.ctx, f.queue)
	f.check(err)
	f.add("g", "b")
	f.wantState("b", core.StatePending)
}
