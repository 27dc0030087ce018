package faultsuite

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
)

func TestStrandedGroupsAreSeen(t *testing.T) {
	at := time.Now()
	good := core.GroupInfo{Group: "g", Depth: 1, Head: "j", DueSince: at}
	for want, change := range map[string]func(*core.GroupInfo){
		"":                   func(*core.GroupInfo) {},
		"is not due:":        func(g *core.GroupInfo) { g.DueSince = time.Time{} },
		"is not due soon":    func(g *core.GroupInfo) { g.DueSince = at.Add(time.Hour) },
		"has none":           func(g *core.GroupInfo) { g.Depth = 0 },
		"has no head":        func(g *core.GroupInfo) { g.Head = "" },
		"is due though held": func(g *core.GroupInfo) { g.Held = true },
	} {
		g := good
		change(&g)
		v := stranded([]core.GroupInfo{good, g, {Group: "h", Held: true, Depth: 3}}, at.Add(time.Second))
		if want == "" && len(v) > 0 || want != "" && (len(v) != 1 || !strings.Contains(v[0].Text, want)) {
			t.Errorf("want a violation about %q, got %v", want, v)
		}
	}
}

func TestMixedUpJobsAreSeen(t *testing.T) {
	failure := core.Failure{Attempt: 1, Error: "e", At: time.Now()}
	for want, change := range map[string]func(*core.Job){
		"":                                   func(*core.Job) {},
		"payload":                            func(j *core.Job) { j.Payload = []byte("b") },
		"result":                             func(j *core.Job) { j.Result = []byte("progress of b") },
		"has 2 attempts and 3 failures":      func(j *core.Job) { j.Failures = []core.Failure{failure, failure, failure} },
		"with 2 attempts has the failures [": func(j *core.Job) { j.Failures[0].Attempt = 3 },
	} {
		job := &core.Job{ID: "a", Payload: []byte("a"), Result: []byte("result of a"), Attempt: 2, Failures: []core.Failure{failure}}
		change(job)
		v := mixedUp([]*core.Job{job})
		if want == "" && len(v) > 0 || want != "" && (len(v) != 1 || !strings.Contains(v[0].Text, want)) {
			t.Errorf("want a violation about %q, got %v", want, v)
		}
	}
}
