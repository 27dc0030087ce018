package backendtest

import (
	"github.com/rota-queue/rota/core"
)

var patchTests = []test{
	{"Save", testSave},
	{"Rules", testPatchRules},
	{"WithEveryAction", testPatchInSettle},
	{"Update", testUpdate},
	{"UpdateWhile", testUpdateWhile},
	{"UpdateOfRunning", testUpdateRunning},
	{"UpdateOfNothing", testUpdateNothing},
}

func testSave(f *fixture) {
	for _, group := range []string{"g", ""} {
		f := f.otherQueue()
		f.put(core.NewJob{Group: group, ID: "a", Payload: []byte("p"), Headers: map[string]string{"h": "1"}})
		l := f.claim("a")
		before := f.job("a")
		f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{
			Payload: []byte("q"), Result: []byte("50%"), SetHeaders: map[string]string{"step": "2"},
		}))
		want := *before
		want.Payload, want.Result = []byte("q"), []byte("50%")
		want.Headers = map[string]string{"h": "1", "step": "2"}
		f.sameJob("after a save", f.job("a"), &want)
		f.claimNothing()
		f.retry(l, 0)
		l = f.claim("a")
		equal(f, "payload of the next attempt", string(l.Job.Payload), "q")
		equal(f, "progress in the next attempt", string(l.Job.Result), "50%")
		equal(f, "header in the next attempt", l.Job.Headers["step"], "2")
	}
}

// patchCases say what a patch makes of payload p, headers a=1 b=2 and result r.
var patchCases = []struct {
	name    string
	patch   core.Patch
	payload string
	headers map[string]string
	result  string
}{
	{"nothing", core.Patch{}, "p", map[string]string{"a": "1", "b": "2"}, "r"},
	{"payload", core.Patch{Payload: []byte("new")}, "new", map[string]string{"a": "1", "b": "2"}, "r"},
	{"empty payload", core.Patch{Payload: []byte{}}, "", map[string]string{"a": "1", "b": "2"}, "r"},
	{"result", core.Patch{Result: []byte("s")}, "p", map[string]string{"a": "1", "b": "2"}, "s"},
	{"binary", core.Patch{Payload: []byte{0, 255}, Result: []byte{255, 0}}, "\x00\xff",
		map[string]string{"a": "1", "b": "2"}, "\xff\x00"},
	{"new header", core.Patch{SetHeaders: map[string]string{"c": "3"}}, "p",
		map[string]string{"a": "1", "b": "2", "c": "3"}, "r"},
	{"changed header", core.Patch{SetHeaders: map[string]string{"b": ""}}, "p", map[string]string{"a": "1", "b": ""}, "r"},
	{"dropped header", core.Patch{DropHeaders: []string{"a", "none"}}, "p", map[string]string{"b": "2"}, "r"},
	{"set and dropped", core.Patch{SetHeaders: map[string]string{"a": "9", "c": "3"}, DropHeaders: []string{"a", "c"}},
		"p", map[string]string{"b": "2"}, "r"},
	{"all dropped", core.Patch{DropHeaders: []string{"a", "b"}}, "p", map[string]string{}, "r"},
	{"empty header map", core.Patch{SetHeaders: map[string]string{}}, "p", map[string]string{"a": "1", "b": "2"}, "r"},
	{"everything", core.Patch{Payload: []byte("n"), Result: []byte("m"),
		SetHeaders: map[string]string{"c": "3"}, DropHeaders: []string{"b"}}, "n", map[string]string{"a": "1", "c": "3"}, "m"},
}

// Save, Settle and Update change contents by the same rules.
func testPatchRules(f *fixture) {
	ways := map[string]func(f *fixture, l core.Lease, p core.Patch){
		"save":   func(f *fixture, l core.Lease, p core.Patch) { f.check(f.b.Save(f.ctx, l.LeaseRef, p)) },
		"settle": func(f *fixture, l core.Lease, p core.Patch) { f.settle(l, core.Outcome{Action: core.Retry, Patch: p}) },
		"update": func(f *fixture, l core.Lease, p core.Patch) { f.check(f.b.Update(f.ctx, f.queue, l.JobID, p, 0)) },
	}
	for name, way := range ways {
		for _, c := range patchCases {
			f.put(core.NewJob{ID: "j", Payload: []byte("p"), Headers: map[string]string{"a": "1", "b": "2"}})
			l := f.claim("j")
			f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{Result: []byte("r")}))
			f.Logf("%s by %s", c.name, name)
			way(f, l, c.patch)
			job := f.job("j")
			equal(f, "payload", string(job.Payload), c.payload)
			equal(f, "result", string(job.Result), c.result)
			equal(f, "number of headers", len(job.Headers), len(c.headers))
			for k, v := range c.headers {
				got, ok := job.Headers[k]
				equal(f, "header "+k+" is set", ok, true)
				equal(f, "header "+k, got, v)
			}
			f.check(f.b.DeleteQueue(f.ctx, f.queue, true))
		}
	}
}

// A settle applies its patch in the same step, whatever the action.
func testPatchInSettle(f *fixture) {
	patch := core.Patch{Payload: []byte("new"), SetHeaders: map[string]string{"h": "1"}, Result: []byte("r")}
	f.configure(core.QueueConfig{CompletedRetention: hour})
	for action := core.Complete; action <= core.Cancel; action++ {
		id := action.String()
		f.add("g"+id, id)
		f.settle(f.claim(id), core.Outcome{Action: action, Delay: hour, Patch: patch})
		job := f.job(id)
		f.Log(action)
		equal(f, "payload", string(job.Payload), "new")
		equal(f, "header", job.Headers["h"], "1")
		equal(f, "result", string(job.Result), "r")
		if job.State == core.StatePending {
			f.complete(f.claim(id))
		}
	}
}

func testUpdate(f *fixture) {
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{})
		before := f.job("a")
		f.check(f.b.Update(f.ctx, f.queue, "a", core.Patch{
			Payload: []byte("new"), SetHeaders: map[string]string{"h": "1"}, Result: []byte("r"),
		}, core.States(state)))
		want := *before
		want.Payload, want.Result, want.Headers = []byte("new"), []byte("r"), map[string]string{"h": "1"}
		f.sameJob("after an update", f.job("a"), &want)
	}
}

func testUpdateWhile(f *fixture) {
	for _, state := range core.JobStates() {
		f := f.otherQueue()
		f.inState(state, core.Dedup{})
		f.unchanged("a refused update", func() {
			err := f.b.Update(f.ctx, f.queue, "a", core.Patch{Payload: []byte("new")}, core.AnyState&^core.States(state))
			f.wantStateError(err, "a", state)
		})
		f.check(f.b.Update(f.ctx, f.queue, "a", core.Patch{Payload: []byte("new")}, 0))
		equal(f, "payload", string(f.job("a").Payload), "new")
	}
}

// An update is not fenced and does not touch the lease.
func testUpdateRunning(f *fixture) {
	f.add("g", "a")
	l := f.claim("a")
	f.check(f.b.Update(f.ctx, f.queue, "a", core.Patch{SetHeaders: map[string]string{"u": "1"}}, core.States(core.StateRunning)))
	f.check(f.b.Save(f.ctx, l.LeaseRef, core.Patch{SetHeaders: map[string]string{"s": "1"}}))
	equal(f, "number of headers", len(f.job("a").Headers), 2)
	f.claimNothing()
	f.complete(l)
}

func testUpdateNothing(f *fixture) {
	patch := core.Patch{Payload: []byte("p")}
	f.wantErr(f.b.Update(f.ctx, f.queue, "a", patch, 0), core.ErrNotFound)
	f.add("g", "b")
	f.wantErr(f.b.Update(f.ctx, f.queue, "a", patch, 0), core.ErrNotFound)
	f.complete(f.claim("b"))
	f.wantErr(f.b.Update(f.ctx, f.queue, "b", patch, core.AnyState), core.ErrNotFound)
}
