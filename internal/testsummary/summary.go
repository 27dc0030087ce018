package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type summary struct {
	out                     *bufio.Writer
	passed, failed, skipped int
	skips                   []string
	packages                map[string]*packageState
}

type packageState struct {
	running map[string]*strings.Builder // output of tests that have not ended
	output  strings.Builder             // what belongs to no running test
	failed  int
}

// summarize copies what matters from events to w as it comes, and ends with
// the counts. What is no event is copied as it is.
func summarize(events io.Reader, w io.Writer) error {
	s := &summary{out: bufio.NewWriter(w), packages: map[string]*packageState{}}
	r := bufio.NewReader(events)
	for {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			s.line(line)
			if err := s.out.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	s.end()
	return s.out.Flush()
}

func (s *summary) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		s.print(string(line))
		return
	}
	switch {
	case e.Action == "build-output":
		s.print(e.Output)
	case e.Package == "":
		// Other news of the build; its outcome comes with the package.
	case e.Test == "":
		s.packageEvent(e)
	default:
		s.testEvent(e)
	}
}

func (s *summary) state(name string) *packageState {
	p := s.packages[name]
	if p == nil {
		p = &packageState{running: map[string]*strings.Builder{}}
		s.packages[name] = p
	}
	return p
}

func (s *summary) testEvent(e event) {
	p := s.state(e.Package)
	test := p.running[e.Test]
	switch e.Action {
	case "run":
		p.running[e.Test] = &strings.Builder{}
	case "output":
		switch {
		case isBenchmark(e.Test) && !strings.HasPrefix(e.Output, "==="):
			s.print(e.Output)
		case test != nil:
			test.WriteString(e.Output)
		default:
			// Said after the test's end, by a goroutine it left: no test's fault
			// that we know of, but needed if the package fails.
			p.output.WriteString(e.Output)
		}
	case "pass":
		s.passed++
		delete(p.running, e.Test)
	case "skip":
		s.skipped++
		s.skips = append(s.skips, fmt.Sprintf("%s.%s: %s", e.Package, e.Test, reason(test)))
		delete(p.running, e.Test)
	case "fail":
		s.fail(e.Package, e.Test)
	}
}

func isBenchmark(test string) bool { return strings.HasPrefix(test, "Benchmark") }

// reason is what a skipped test said, on one line.
func reason(output *strings.Builder) string {
	var said []string
	if output != nil {
		for line := range strings.Lines(output.String()) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "--- ") {
				said = append(said, line)
			}
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// fail counts a failed test and prints all it said.
func (s *summary) fail(name, test string) {
	p := s.state(name)
	s.failed++
	p.failed++
	s.print(fmt.Sprintf("=== FAIL  %s %s\n", name, test))
	if said := p.running[test]; said != nil {
		s.print(said.String())
	}
	delete(p.running, test)
}

func (s *summary) packageEvent(e event) {
	p := s.state(e.Package)
	switch e.Action {
	case "output":
		if isResult(e.Output) {
			s.print(e.Output)
		} else {
			p.output.WriteString(e.Output)
		}
	case "pass", "skip":
		delete(s.packages, e.Package)
	case "fail":
		s.packageFailed(e.Package)
	}
}

// isResult tells whether the line is the one that go test prints for a
// package without -json.
func isResult(line string) bool {
	for _, start := range []string{"ok  \t", "FAIL\t", "?   \t"} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

// packageFailed counts what was still running as failed, and the package
// itself when that is all there is to count: it did not build, say.
func (s *summary) packageFailed(name string) {
	p := s.state(name)
	for _, test := range slices.Sorted(maps.Keys(p.running)) {
		s.fail(name, test)
	}
	if p.failed == 0 {
		s.failed++
	}
	if said := strings.TrimSpace(p.output.String()); said != "" && said != "FAIL" {
		s.print(fmt.Sprintf("=== OUTPUT  %s\n%s\n", name, said))
	}
	delete(s.packages, name)
}

// end is the end of all events. A package without a result is one whose run
// was cut short.
func (s *summary) end() {
	for _, name := range slices.Sorted(maps.Keys(s.packages)) {
		s.print(fmt.Sprintf("FAIL\t%s [no result]\n", name))
		s.packageFailed(name)
	}
	for _, skip := range s.skips {
		s.print("skipped " + skip + "\n")
	}
	s.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped))
}

// print leaves errors to the next Flush, which reports them.
func (s *summary) print(text string) { _, _ = s.out.WriteString(text) }
