package main

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// These are lines that go test -json has printed, less times.
const (
	passing = `{"Action":"start","Package":"x/a"}
{"Action":"run","Package":"x/a","Test":"TestOK"}
{"Action":"output","Package":"x/a","Test":"TestOK","Output":"=== RUN   TestOK\n"}
{"Action":"output","Package":"x/a","Test":"TestOK","Output":"chatter\n"}
{"Action":"run","Package":"x/a","Test":"TestOK/sub"}
{"Action":"output","Package":"x/a","Test":"TestOK/sub","Output":"    --- PASS: TestOK/sub (0.00s)\n"}
{"Action":"pass","Package":"x/a","Test":"TestOK/sub"}
{"Action":"pass","Package":"x/a","Test":"TestOK"}
{"Action":"output","Package":"x/a","Output":"PASS\n"}
{"Action":"output","Package":"x/a","Output":"ok  \tx/a\t0.01s\n"}
{"Action":"pass","Package":"x/a"}
{"Action":"start","Package":"x/d"}
{"Action":"output","Package":"x/d","Output":"?   \tx/d\t[no test files]\n"}
{"Action":"skip","Package":"x/d"}
`
	skipping = `{"Action":"run","Package":"x/s","Test":"TestSkip"}
{"Action":"output","Package":"x/s","Test":"TestSkip","Output":"=== RUN   TestSkip\n"}
{"Action":"output","Package":"x/s","Test":"TestSkip","Output":"    s_test.go:5: no such server\n"}
{"Action":"output","Package":"x/s","Test":"TestSkip","Output":"--- SKIP: TestSkip (0.00s)\n"}
{"Action":"skip","Package":"x/s","Test":"TestSkip"}
{"Action":"output","Package":"x/s","Output":"ok  \tx/s\t0.01s\n"}
{"Action":"pass","Package":"x/s"}
`
	failing = `{"Action":"run","Package":"x/f","Test":"TestBad"}
{"Action":"run","Package":"x/f","Test":"TestBad/s1"}
{"Action":"output","Package":"x/f","Test":"TestBad/s1","Output":"    f_test.go:4: bad thing\n"}
{"Action":"fail","Package":"x/f","Test":"TestBad/s1"}
{"Action":"run","Package":"x/f","Test":"TestBad/s2"}
{"Action":"pass","Package":"x/f","Test":"TestBad/s2"}
{"Action":"fail","Package":"x/f","Test":"TestBad"}
{"Action":"output","Package":"x/f","Output":"FAIL\n"}
{"Action":"output","Package":"x/f","Output":"FAIL\tx/f\t0.01s\n"}
{"Action":"fail","Package":"x/f"}
`
	notBuilt = `{"ImportPath":"x/c [x/c.test]","Action":"build-output","Output":"c/c.go:2:12: undefined: y\n"}
{"ImportPath":"x/c [x/c.test]","Action":"build-fail"}
{"Action":"start","Package":"x/c"}
{"Action":"output","Package":"x/c","Output":"FAIL\tx/c [build failed]\n"}
{"Action":"fail","Package":"x/c","FailedBuild":"x/c [x/c.test]"}
`
	timedOut = `{"Action":"run","Package":"x/t","Test":"TestPar"}
{"Action":"pause","Package":"x/t","Test":"TestPar"}
{"Action":"run","Package":"x/t","Test":"TestHang"}
{"Action":"output","Package":"x/t","Test":"TestHang","Output":"panic: test timed out after 2s\n"}
{"Action":"output","Package":"x/t","Output":"FAIL\tx/t\t2.01s\n"}
{"Action":"fail","Package":"x/t"}
`
	exited = `{"Action":"run","Package":"x/e","Test":"TestE"}
{"Action":"pass","Package":"x/e","Test":"TestE"}
{"Action":"output","Package":"x/e","Test":"TestE","Output":"WARNING: said late\n"}
{"Action":"output","Package":"x/e","Output":"exit status 3\n"}
{"Action":"output","Package":"x/e","Output":"FAIL\tx/e\t0.01s\n"}
{"Action":"fail","Package":"x/e"}
`
	benchmark = `{"Action":"run","Package":"x/b","Test":"BenchmarkX"}
{"Action":"output","Package":"x/b","Test":"BenchmarkX","Output":"=== RUN   BenchmarkX\n"}
{"Action":"output","Package":"x/b","Test":"BenchmarkX","Output":"BenchmarkX-2   \t10\t 5 ns/op\n"}
{"Action":"output","Package":"x/b","Output":"ok  \tx/b\t0.01s\n"}
{"Action":"pass","Package":"x/b"}
`
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, events string
		want         []string // in this order
		not          string
		last         string
	}{
		{"nothing", "", nil, "", "0 passed, 0 failed, 0 skipped"},
		{"passing", passing, []string{"ok  \tx/a\t0.01s\n", "?   \tx/d"}, "chatter", "2 passed, 0 failed, 0 skipped"},
		{"skipping", skipping, []string{"skipped x/s.TestSkip: s_test.go:5: no such server\n"}, "", "0 passed, 0 failed, 1 skipped"},
		{"failing", failing, []string{"=== FAIL  x/f TestBad/s1\n", "bad thing", "=== FAIL  x/f TestBad\n", "FAIL\tx/f\t"}, "OUTPUT", "1 passed, 2 failed, 0 skipped"},
		{"not built", notBuilt, []string{"undefined: y", "FAIL\tx/c [build failed]"}, "", "0 passed, 1 failed, 0 skipped"},
		{"timed out", timedOut, []string{"FAIL  x/t TestHang", "timed out", "FAIL  x/t TestPar"}, "", "0 passed, 2 failed, 0 skipped"},
		{"exited", exited, []string{"said late", "exit status 3"}, "", "1 passed, 1 failed, 0 skipped"},
		{"cut short", strings.SplitAfter(passing, "chatter\\n\"}\n")[0], []string{"[no result]", "chatter"}, "", "0 passed, 1 failed, 0 skipped"},
		{"benchmark", benchmark, []string{"5 ns/op"}, "===", "0 passed, 0 failed, 0 skipped"},
		{"no event", "go: some words\n{\"a\":1}\n", []string{"go: some words\n", "{\"a\":1}\n"}, "", "0 passed, 0 failed, 0 skipped"},
		{"all", passing + skipping + failing + notBuilt + timedOut, []string{"skipped x/s"}, "", "3 passed, 5 failed, 1 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			if err := summarize(iotest.OneByteReader(strings.NewReader(c.events)), &out); err != nil {
				t.Fatal(err)
			}
			rest := out.String()
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Errorf("no %q in its place in:\n%s", want, out.String())
					break
				}
				rest = after
			}
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("%q in:\n%s", c.not, out.String())
			}
			if !strings.HasSuffix("\n"+out.String(), "\n"+c.last+"\n") {
				t.Errorf("no last line %q in:\n%s", c.last, out.String())
			}
		})
	}
}

func TestSummaryReportsReadErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := summarize(iotest.ErrReader(broken), &strings.Builder{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
