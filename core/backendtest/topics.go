package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-queue/rota/core"
)

var topicTests = []test{
	{"BindAndUnbind", testBind},
	{"BindMakesTheQueue", testBindMakesQueue},
	{"PublishReachesAll", testFanOut},
	{"SameJobInEach", testFanOutCopies},
	{"QueuesOwnSettings", testFanOutSettings},
	{"FallbackQueue", testFallback},
	{"NoBinding", testNoBinding},
	{"OnlyFromNowOn", testBindFromNow},
	{"AllOrNone", testFanOutAllOrNone},
	{"AllOrNothingBatch", testFanOutBatch},
	{"DeletedQueueIsUnbound", testDeletedUnbound},
	{"BindWhilePublishing", testBindRace},
	{"Order", testFanOutOrder},
}

// topic makes a topic and n queues bound to it.
func (f *fixture) topic(n int) (string, []*fixture) {
	f.Helper()
	topic := uniqueName()
	queues := make([]*fixture, n)
	for i := range queues {
		queues[i] = f.onQueue(fmt.Sprintf("%s@%c", topic, 'a'+i))
		f.check(f.b.Bind(f.ctx, topic, queues[i].queue))
	}
	return topic, queues
}

func (f *fixture) bindings(topic string) []string {
	f.Helper()
	list, err := f.b.Bindings(f.ctx, topic)
	f.check(err)
	queues := []string{}
	for _, b := range list {
		equal(f, "topic of the binding", b.Topic, topic)
		queues = append(queues, b.Queue)
	}
	return queues
}

func queueNames(queues []*fixture) []string {
	list := []string{}
	for _, q := range queues {
		list = append(list, q.queue)
	}
	return list
}

func testBind(f *fixture) {
	equal(f, "bindings", f.bindings(uniqueName()), []string{})
	from := f.now()
	topic, queues := f.topic(3)
	to := f.now()
	equal(f, "bindings", f.bindings(topic), queueNames(queues))
	list, err := f.b.Bindings(f.ctx, topic)
	f.check(err)
	for _, b := range list {
		f.within("time of the binding", b.CreatedAt, from, to)
	}
	f.check(f.b.Bind(f.ctx, topic, queues[1].queue)) // again
	again, err := f.b.Bindings(f.ctx, topic)
	f.check(err)
	for i := range again {
		equal(f, "time of the binding", clock(again[i].CreatedAt), clock(list[i].CreatedAt))
	}
	f.check(f.b.Unbind(f.ctx, topic, queues[1].queue))
	f.check(f.b.Unbind(f.ctx, topic, queues[1].queue)) // again
	f.check(f.b.Unbind(f.ctx, topic, topic+"@nobody"))
	equal(f, "bindings", f.otherHandle().bindings(topic), []string{queues[0].queue, queues[2].queue})
}

func testBindMakesQueue(f *fixture) {
	topic, queues := f.topic(1)
	equal(f, "queues", f.mine(topic), queueNames(queues))
	f.check(f.b.Unbind(f.ctx, topic, queues[0].queue))
	equal(f, "queues", f.mine(topic), queueNames(queues))
	// A queue that is there already keeps all it has.
	g := f.onQueue(topic + "@old")
	g.configure(core.QueueConfig{MaxAttempts: 3})
	g.add("g", "a")
	f.check(f.b.Bind(f.ctx, topic, g.queue))
	equal(f, "max attempts", g.info().Config.MaxAttempts, 3)
	g.wantServed("a")
}

func testFanOut(f *fixture) {
	topic, queues := f.topic(3)
	res := f.put(core.NewJob{Topic: topic, Group: "g", ID: "a"})
	equal(f, "id", res.ID, "a")
	equal(f, "queues", slices.Sorted(slices.Values(res.Queues)), queueNames(queues))
	if res.Seq == 0 {
		f.Error("there is no Seq")
	}
	f.put(core.NewJob{Topic: topic, Queue: topic + "@fallback", Group: "g", ID: "b"}) // not needed
	f.check(f.b.Unbind(f.ctx, topic, queues[2].queue))
	res = f.put(core.NewJob{Topic: topic, Group: "g", ID: "c"})
	equal(f, "queues", slices.Sorted(slices.Values(res.Queues)), queueNames(queues[:2]))
	queues[0].wantServed("a", "b", "c")
	queues[1].wantServed("a", "b", "c")
	queues[2].wantServed("a", "b")
	equal(f, "queues of the family", f.mine(topic), queueNames(queues))
}

// Each queue has the whole job under one id, and each goes its own way.
func testFanOutCopies(f *fixture) {
	topic, queues := f.topic(2)
	job := fullJob()
	job.ID, job.Topic, job.Retention = "", topic, 0
	res := f.put(job)
	for _, q := range queues {
		got := q.job(res.ID)
		want := *got
		want.Queue, want.Kind, want.Payload, want.Headers = q.queue, job.Kind, job.Payload, job.Headers
		want.Group, want.Priority, want.DedupKey = job.Group, job.Priority, job.Dedup.Key
		want.Timeout, want.Deadline, want.MaxAttempts = job.Timeout, job.Deadline, job.MaxAttempts
		f.sameJob("in "+q.queue, got, &want)
	}
	queues[0].complete(queues[0].claim(res.ID))
	queues[1].retry(queues[1].claim(res.ID), 0)
	queues[0].wantState(res.ID, core.StateGone)
	equal(f, "attempt", queues[1].claim(res.ID).Job.Attempt, 2)
}

func testFanOutSettings(f *fixture) {
	topic, queues := f.topic(2)
	queues[0].configure(core.QueueConfig{MaxAttempts: 2, Scheduling: core.Strict})
	f.put(core.NewJob{Topic: topic, Group: "g", ID: "s", Delay: hour})
	f.put(core.NewJob{Topic: topic, Group: "g", ID: "a"})
	equal(f, "max attempts", queues[0].job("a").MaxAttempts, 2)
	equal(f, "max attempts", queues[1].job("a").MaxAttempts, core.DefaultMaxAttempts)
	queues[0].claimNothing()
	queues[1].wantServed("a")
}

// The named queue gets the job when nobody is bound.
func testFallback(f *fixture) {
	topic := uniqueName()
	fallback := f.onQueue(topic + "@fallback")
	plain := f.onQueue(topic)
	res := f.put(core.NewJob{Topic: topic, Queue: fallback.queue, Group: "g", ID: "a"})
	equal(f, "queues", res.Queues, []string{fallback.queue})
	res = f.put(core.NewJob{Topic: topic, Queue: plain.queue, ID: "b"})
	equal(f, "queues", res.Queues, []string{plain.queue})
	fallback.wantServed("a")
	plain.wantServed("b")
}

func testNoBinding(f *fixture) {
	topic, queues := f.topic(1)
	f.check(f.b.Unbind(f.ctx, topic, queues[0].queue))
	results := f.tryPublish(core.NewJob{Topic: topic, ID: "a"}, core.NewJob{ID: "b"})
	f.wantErr(results[0].Err, core.ErrNoBinding)
	f.check(results[1].Err)
	queues[0].claimNothing()
	results = f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		{Queue: topic + "@x", ID: "c"}, {Topic: topic, ID: "d"},
	}})
	f.wantErr(results[0].Err, core.ErrNotPublished)
	f.wantErr(results[1].Err, core.ErrNoBinding)
	equal(f, "queues", f.mine(topic), queueNames(queues))
}

func testBindFromNow(f *fixture) {
	topic, queues := f.topic(1)
	f.put(core.NewJob{Topic: topic, Group: "g", ID: "a"})
	late := f.onQueue(topic + "@late")
	f.check(f.b.Bind(f.ctx, topic, late.queue))
	f.put(core.NewJob{Topic: topic, Group: "g", ID: "b"})
	queues[0].wantServed("a", "b")
	late.wantServed("b")
}

// When one of the queues refuses the job, none of them has it.
func testFanOutAllOrNone(f *fixture) {
	topic, queues := f.topic(3)
	queues[1].put(core.NewJob{Group: "g", ID: "taken"})
	queues[2].put(core.NewJob{Group: "g", ID: "holder", Dedup: core.Dedup{Key: "k"}})
	for _, job := range []core.NewJob{{Group: "g", ID: "taken"}, {Group: "g", ID: "b", Dedup: core.Dedup{Key: "k"}}} {
		job.Topic = topic
		res := f.tryPublish(job)[0]
		var dup *core.DuplicateError
		if !errors.As(res.Err, &dup) {
			f.Fatalf("got error %v, want a *DuplicateError", res.Err)
		}
		if job.ID == "taken" {
			equal(f, "duplicate", *dup, core.DuplicateError{Queue: queues[1].queue, ID: "taken"})
		} else {
			equal(f, "duplicate", *dup, core.DuplicateError{Queue: queues[2].queue, Key: "k", ID: "holder"})
		}
	}
	queues[0].claimNothing()
	queues[1].wantServed("taken")
	queues[2].wantServed("holder")
	f.put(core.NewJob{Topic: topic, Group: "g", ID: "b", Dedup: core.Dedup{Key: "k"}})
	for _, q := range queues {
		q.wantServed("b")
	}
}

func testFanOutBatch(f *fixture) {
	topic, queues := f.topic(2)
	queues[1].put(core.NewJob{ID: "taken"})
	results := f.tryRequest(core.PublishRequest{AllOrNothing: true, Jobs: []core.NewJob{
		{Topic: topic, ID: "a"}, {Queue: queues[0].queue, ID: "b"}, {Topic: topic, ID: "taken"},
	}})
	f.wantErr(results[0].Err, core.ErrNotPublished)
	f.wantErr(results[1].Err, core.ErrNotPublished)
	f.wantErr(results[2].Err, core.ErrIDTaken)
	queues[0].claimNothing()
	queues[1].wantServed("taken")
}

func testDeletedUnbound(f *fixture) {
	topic, queues := f.topic(2)
	f.check(f.b.DeleteQueue(f.ctx, queues[0].queue, true))
	equal(f, "bindings", f.bindings(topic), []string{queues[1].queue})
	f.put(core.NewJob{Topic: topic, ID: "a"})
	equal(f, "queues", f.mine(topic), []string{queues[1].queue})
	queues[1].wantServed("a")
}

// A publish that meets a bind reaches the new queue or not, the others always.
func testBindRace(f *fixture) {
	topic, queues := f.topic(1)
	late := f.onQueue(topic + "@late")
	other := f.otherHandle()
	const n = 30
	f.together(2, func(i int) error {
		if i == 0 {
			time.Sleep(time.Millisecond)
			return other.b.Bind(f.ctx, topic, late.queue)
		}
		for _, id := range names("j", n) {
			if _, err := core.Publish(f.ctx, f.b, core.NewJob{Topic: topic, Group: "g", ID: id}); err != nil {
				return err
			}
		}
		return nil
	})
	f.put(core.NewJob{Topic: topic, Group: "g", ID: "last"})
	queues[0].wantServed(append(names("j", n), "last")...)
	got := late.serve()
	want := append(names("j", n), "last")
	equal(f, "jobs of the new queue, from some time on", got, want[len(want)-len(got):])
}

func testFanOutOrder(f *fixture) {
	topic, queues := f.topic(2)
	var batch []core.NewJob
	for _, id := range names("j", 20) {
		batch = append(batch, core.NewJob{Topic: topic, Group: "g", ID: id})
	}
	f.publish(batch[:10]...)
	for _, job := range batch[10:] {
		f.put(job)
	}
	for _, q := range queues {
		q.wantServed(names("j", 20)...)
	}
}
