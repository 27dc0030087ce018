package main

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rota-queue/rota/internal/testserver"
)

func TestMain(m *testing.M) {
	testserver.Main(m, func() error { return goleak.Find() })
}

// said is what a run of the program left.
type said struct {
	code           int
	stdout, stderr string
}

func rota(t testing.TB, args ...string) said {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, output{&stdout, &stderr})
	return said{code, stdout.String(), stderr.String()}
}

// want fails unless the program ended with the code and said the text, and, if it
// failed, that in one sentence on standard error.
func (s said) want(t testing.TB, code int, text string) {
	t.Helper()
	if s.code != code || !strings.Contains(s.stdout+s.stderr, text) {
		t.Fatalf("exit code %d, want %d and %q; it said:\n%s%s", s.code, code, text, s.stdout, s.stderr)
	}
	if code == exitDone && s.stderr != "" {
		t.Fatalf("it succeeded and said on standard error: %s", s.stderr)
	}
	if code != exitDone && (s.stdout != "" || strings.Count(s.stderr, "\n") != 1) {
		t.Fatalf("want one line on standard error and nothing else, got:\n%s%s", s.stdout, s.stderr)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"help", "-h", "--help"} {
		rota(t, args).want(t, exitDone, "migrate ")
	}
	for _, args := range [][]string{{"help", "migrate"}, {"migrate", "-h"}, {"migrate", "--help"}} {
		got := rota(t, args...)
		got.want(t, exitDone, "-drop-all-data")
		for _, text := range []string{"Exit codes", "DATABASE_URL", "-check", "-print", "-schema", "-to", "-url", "-wait"} {
			if !strings.Contains(got.stdout, text) {
				t.Errorf("%q does not tell of %s", args, text)
			}
		}
	}
	if got := rota(t); got.code != exitUsage || !strings.Contains(got.stderr, "Commands:") {
		t.Errorf("without arguments: %+v", got)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for line, text := range map[string]string{
		"migrat":                             `no command "migrat"`,
		"help migrat":                        `no command "migrat"`,
		"migrate up":                         `no argument "up"`,
		"migrate -no-such":                   "no-such",
		"migrate -to x":                      `"x"`,
		"migrate -to 99":                     "schema version",
		"migrate -to -1":                     "schema version",
		"migrate -to 0":                      "-drop-all-data",
		"migrate -drop-all-data":             "-to 0",
		"migrate -print -check":              "together",
		"migrate -from 1":                    "-print",
		"migrate -check -to 1":               "-check",
		"migrate -print -from 99":            "schema version",
		"migrate -schema Rota":               "schema",
		"migrate -wait -1s":                  "-wait",
		"migrate -url http://host":           "URL",
		"migrate -url postgres://h/?pool=%x": "URL",
	} {
		t.Run(line, func(t *testing.T) {
			rota(t, strings.Fields(line)...).want(t, exitUsage, text)
		})
	}
}
