package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rota-queue/rota/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m, func() error { return goleak.Find() }) }

var small = options{customers: 30, events: 600, seed: 1}

func TestRun(t *testing.T) {
	for name, set := range map[string]func(*options){
		"memory":   func(*options) {},
		"redis":    func(o *options) { o.redis = testserver.SharedRedis(t).URL() },
		"postgres": func(o *options) { o.postgres = testserver.SharedPostgres(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			o := small
			set(&o)
			var out strings.Builder
			if err := run(t.Context(), o, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			t.Log("\n" + out.String())
			for _, want := range []string{"600 of 600, 0 twice", "30 customers checked, 0 violations", "store: " + name, "all checks passed"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing", want)
				}
			}
		})
	}
}

// TestParse: what can not be meant is refused, not ignored.
func TestParse(t *testing.T) {
	if o, err := parse([]string{"-events", "600", "-customers", "30"}); err != nil || o != small {
		t.Errorf("%+v, %v", o, err)
	}
	for want, args := range map[string][]string{
		`no argument "redis://x"`: {"redis://x"},
		`no argument "-events"`:   {"--", "-events", "600"},
		"exclude each other":      {"-redis", "a", "-postgres", "b"},
		"at least 2 customers":    {"-customers", "1"},
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}

// TestEvents: the same options give the same events, half of them of one customer.
func TestEvents(t *testing.T) {
	flood, rest := makeEvents(small)
	again, _ := makeEvents(small)
	if len(flood) != 300 || len(rest) != 300 || flood[299] != again[299] {
		t.Fatalf("%d and %d events", len(flood), len(rest))
	}
	seen := map[string]bool{}
	for _, e := range rest {
		seen[e.Customer] = true
	}
	if len(seen) != 29 {
		t.Errorf("%d other customers", len(seen))
	}
}

// TestChecks: each check sees what it is there to see.
func TestChecks(t *testing.T) {
	record := func(change func(*recorder)) error {
		flood, rest := makeEvents(small)
		r := newRecorder(len(flood) + len(rest))
		for _, e := range append(rest, flood...) {
			r.published(e)
			r.start(e)
			r.end(e)
		}
		for i := range r.runs {
			r.runs[i].waited = time.Duration(i)
		}
		change(r)
		var out strings.Builder
		return r.report(&out, "memory", time.Second)
	}
	for want, change := range map[string]func(*recorder){
		"":                   func(*recorder) {},
		"599 of 600 events":  func(r *recorder) { r.runs = r.runs[:599] },
		"1 events were hand": func(r *recorder) { r.runs = append(r.runs, r.runs[599]) },
		"customer's order":   func(r *recorder) { r.runs[500], r.runs[501] = r.runs[501], r.runs[500] },
		"was at work":        func(r *recorder) { r.start(event{Customer: "a"}); r.start(event{Customer: "a"}); r.runs = r.runs[:600] },
		"the others waited": func(r *recorder) {
			for i := range r.runs {
				r.runs[i].waited = time.Second
			}
		},
	} {
		err := record(change)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
