package backendtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-queue/rota/core"
)

var nameTests = []test{
	{"InEveryPlace", testNamesInJobs},
	{"OfQueues", testNamesOfQueues},
	{"OfTopics", testNamesOfTopics},
	{"OfRecords", testNamesOfRecords},
	{"InHeaders", testNamesInHeaders},
	{"AreNotMixedUp", testNamesNotMixedUp},
	{"LikeOnesOfTheStore", testNamesOfTheStore},
	{"LongestOfAll", testLongestNames},
}

// weirdNames are all allowed. Each means something to some store or shell.
var weirdNames = []string{
	"a b", " leading", "trailing ", "{tag}", "}{", "{}", "a:b", "a@b@c", "@", "%s%d%n", "%00", "*", "?", "[a-z]", "^$",
	`back\slash`, `quote'd`, `"quoted"`, "`tick`", "$1", "${x}", "a;b", "a,b", "a|b", "a/b/../c", "..", "-", "--", "#", "~",
	"<b>", "&amp;", "null", "nil", "true", "0", "-1", "1e9", "0x10", "Ünïcödé", "日本語", "🙂🙃", "x\u2028y", "a\u200bb",
	"\u202eright to left", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙", "é", "e\u0301",
}

// Each name goes through the whole life of a job in all its places at once.
func testNamesInJobs(f *fixture) {
	f.configure(core.QueueConfig{EventTTL: hour, CompletedRetention: hour})
	for _, name := range weirdNames {
		f.Logf("%q", name)
		job := core.NewJob{ID: name, Group: name, Kind: name, Payload: []byte(name), Dedup: core.Dedup{Key: name}}
		f.put(job)
		f.wantDuplicate(f.tryPublish(core.NewJob{Group: name, Dedup: core.Dedup{Key: name}})[0].Err, name, name)
		l := f.tryClaim(core.ClaimRequest{Owner: name}).Leases[0]
		equal(f, "the lease's name", l.LeaseRef, core.LeaseRef{Queue: f.queue, Group: name, JobID: name, Token: l.Token})
		f.check(f.extend(l, hour).Err)
		f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{SetHeaders: map[string]string{name: name}}))
		equal(f, "owner", f.group(name).Lease.Owner, name)
		f.settle(l, core.Outcome{Action: core.Retry, Error: name, Trace: name})
		stored := f.job(name)
		equal(f, "kind", stored.Kind, name)
		equal(f, "header", stored.Headers[name], name)
		equal(f, "error", stored.Failures[0].Error, name)
		equal(f, "worker", stored.Failures[0].Worker, name)
		equal(f, "line", f.line(name), []string{name})
		equal(f, "of this kind", f.ids(core.JobFilter{State: core.StatePending, Kind: name}), []string{name})
		f.act(name, core.PauseGroup)
		f.act(name, core.ResumeGroup)
		f.kill(f.claim(name))
		f.move(core.StatePending, name)
		f.complete(f.claim(name))
		f.wantNoGroup(name)
		f.wantState(name, core.StateCompleted)
	}
	got := f.ids(core.JobFilter{State: core.StateCompleted})
	equal(f, "completed", got, weirdNames)
}

func testNamesOfQueues(f *fixture) {
	base := uniqueName()
	var queues []string
	for i, name := range weirdNames {
		q := f.onQueue(base + name)
		queues = append(queues, q.queue)
		id := fmt.Sprint("j", i)
		q.add("g", id)
		l := q.claim(id)
		equal(q, "queue of the job", l.Job.Queue, q.queue)
		equal(q, "queue of the lease", l.Queue, q.queue)
		q.retry(l, 0)
		equal(q, "queue", q.info().Queue, q.queue)
	}
	slices.Sort(queues)
	equal(f, "queues", f.mine(base), queues)
	for i, name := range weirdNames {
		q := f.onQueue(base + name)
		equal(q, "jobs", q.info().Jobs[core.StatePending], 1)
		q.wantServed(fmt.Sprint("j", i))
	}
}

func testNamesOfTopics(f *fixture) {
	for _, name := range weirdNames {
		topic := uniqueName() + strings.ReplaceAll(name, "@", "+")
		q := f.onQueue(topic + "@" + name)
		f.check(f.b.Bind(f.ctx, topic, q.queue))
		equal(f, "bindings", f.bindings(topic), []string{q.queue})
		f.put(core.NewJob{Topic: topic, ID: "a"})
		q.wantServed("a")
		f.check(f.b.Unbind(f.ctx, topic, q.queue))
		equal(f, "bindings", f.bindings(topic), []string{})
	}
}

func testNamesOfRecords(f *fixture) {
	base := uniqueName()
	for _, name := range weirdNames {
		space := base + name
		rec := f.putRecord(space, name, name, core.PutRecord{TTL: hour})
		f.wantRecord(rec)
		equal(f, "records", len(f.records(space, 0)), 1)
		equal(f, "counter", f.count(space, name, 2, core.MinLease), 2)
	}
	for _, name := range weirdNames {
		equal(f, "records", len(f.records(base+name, 0)), 1)
		f.check(f.b.DeleteRecord(f.ctx, base+name, name, 0))
	}
	// As keys of one space they are sorted by their bytes.
	for _, name := range weirdNames {
		f.putRecord(base, name, "", core.PutRecord{TTL: hour})
	}
	want := slices.Sorted(slices.Values(weirdNames))
	for _, limit := range []int{0, 1, 7} {
		got := []string{}
		for _, rec := range f.records(base, limit) {
			got = append(got, rec.Key)
		}
		equal(f, "keys", got, want)
	}
	for _, name := range weirdNames {
		f.check(f.b.DeleteRecord(f.ctx, base, name, 0))
	}
}

func testNamesInHeaders(f *fixture) {
	headers := map[string]string{"\n": "\r\n\t", "empty": "", "\x01": "\x1f"}
	for _, name := range weirdNames {
		headers[name] = name
	}
	f.put(core.NewJob{ID: "a", Headers: headers})
	equal(f, "headers in the store", f.job("a").Headers, headers)
	l := f.claim("a")
	equal(f, "headers in the lease", l.Job.Headers, headers)
	f.settle(l, core.Outcome{Action: core.Retry, Patch: core.Patch{DropHeaders: weirdNames}})
	equal(f, "headers left", len(f.job("a").Headers), 3)
}

// Names that some stores or file systems hold to be the same are different.
func testNamesNotMixedUp(f *fixture) {
	for i, pair := range [][2]string{{"a", "A"}, {"é", "e\u0301"}, {"a", "a "}, {"a", " a"}, {"1", "01"}, {"ß", "ss"}, {"i", "ı"}} {
		base := fmt.Sprint("pair", i)
		for _, name := range pair {
			f.put(core.NewJob{Group: base + name, ID: base + name, Dedup: core.Dedup{Key: base + name}})
		}
		f.act(base+pair[0], core.PauseGroup)
		f.claimBatch(base + pair[1])
	}
}

// A group or job may have the name of what a store might call its own things.
func testNamesOfTheStore(f *fixture) {
	single := f.put(core.NewJob{ID: "single"})
	taken := []string{
		fmt.Sprintf("j%016d:single", single.Seq), fmt.Sprintf("%016d:single", single.Seq), "gg", "g", "j", "jsingle", "i", "m", "w",
		"single", f.queue, ":", "::", "r0", "s2",
	}
	for _, name := range taken {
		f.add(name, "in "+name)
	}
	f.add("g", "second")
	f.act("j", core.PauseGroup)
	want := []string{}
	for _, name := range taken {
		if name != "j" {
			want = append(want, "in "+name)
		}
	}
	want = append(want, "single", "second")
	f.wantServed(want...)
}

func testLongestNames(f *fixture) {
	long := strings.Repeat("é", core.MaxQueueName) // two bytes each
	q := f.onQueue(strings.ToValidUTF8((uniqueName() + "@" + long)[:core.MaxQueueName], ""))
	q.put(core.NewJob{ID: "a"})
	q.wantServed("a")
	space, name := uniqueName(), strings.Repeat("x", core.MaxRecordName)
	space = (space + name)[:core.MaxRecordName]
	f.wantRecord(f.putRecord(space, name, "v", core.PutRecord{TTL: core.MinLease * 20}))
	owner := strings.Repeat("o", core.MaxOwnerLength)
	f.put(core.NewJob{ID: "a", Group: strings.Repeat("g", core.MaxGroupName)})
	l := f.tryClaim(core.ClaimRequest{Owner: owner}).Leases[0]
	equal(f, "owner", l.Job.Lease.Owner, owner)
	f.complete(l)
}
