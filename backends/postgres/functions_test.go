package rotapostgres

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/rota-queue/rota/core"
)

// releasedFunctions has the digest of the functions of each revision that was
// released. A release adds its own.
var releasedFunctions = map[int]string{}

// A released revision names one set of functions for ever: programs judge by it
// whose functions are newer.
func TestFunctionsRevision(t *testing.T) {
	t.Parallel()
	if digest, ok := releasedFunctions[functionsRevision]; ok && digest != functionsDigest() {
		t.Errorf("the functions are not those of the released revision %d: raise functionsRevision (and functionsSince, if a program of before can not call them)", functionsRevision)
	}
	if functionsSince > functionsRevision {
		t.Error("functionsSince is greater than functionsRevision")
	}
	own := ownFunctions()
	equal(t, "functions read back", parseFunctionSet(own.String()), own)
	equal(t, "a digest alone", parseFunctionSet("0123456789abcdef"), functionSet{digest: "0123456789abcdef"})
}

// logged opens a database and gives what was logged.
func logged(t *testing.T, url string, policy MigratePolicy) (string, error) {
	t.Helper()
	var text bytes.Buffer
	b, err := Open(t.Context(), url, Options{Migrate: policy, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if err == nil {
		wantWorks(t, b)
		check(t, b.Close())
	}
	return text.String(), err
}

// A program leaves the functions of a later release in place if they serve it, and
// refuses to open if they do not; those of an earlier one it replaces. Two builds
// of one revision can not know who is newer: the last one wins, and says so.
func TestMigrateFunctionsOfOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		set    functionSet
		stays  bool
		auto   string // what opening with MigrateAuto logs
		errors string // what it is refused with
		manual string // the same with MigrateCheck
	}{
		{name: "Later", set: functionSet{functionsRevision + 1, functionsRevision, "other"}, stays: true, auto: "functions of a later version"},
		{name: "LaterBreaking", set: functionSet{functionsRevision + 1, functionsRevision + 1, "other"}, stays: true, errors: "update the program", manual: "update the program"},
		{name: "Earlier", set: functionSet{functionsRevision - 1, functionsRevision - 1, "other"}, manual: "run rota migrate"},
		{name: "SameRevision", set: functionSet{functionsRevision, functionsSince, "other"}, auto: "another build of the same revision", manual: "run rota migrate"},
		{name: "BeforeRevisions", set: functionSet{digest: "0123456789abcdef"}, manual: "run rota migrate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := newDatabase(t)
			conn := connect(t, url)
			check(t, Migrate(t.Context(), conn, "", SchemaVersion))
			text := c.set.String()
			if c.set.revision == 0 {
				text = c.set.digest
			}
			_, err := conn.Exec(t.Context(), "UPDATE rota.meta SET functions = '"+text+"'; CREATE FUNCTION rota.of_another() RETURNS integer LANGUAGE sql AS 'SELECT 1'")
			check(t, err)

			if _, err := logged(t, url, MigrateCheck); c.manual != "" {
				wantError(t, err, core.ErrMisconfigured, c.manual)
			} else {
				check(t, err)
			}
			err = CheckSchema(t.Context(), conn, "")
			equal(t, "CheckSchema finds fault", err != nil, c.manual != "")
			if se := (*SchemaError)(nil); errors.As(err, &se) {
				equal(t, "FunctionsTooNew", se.FunctionsTooNew, c.stays)
			}
			warnings, err := logged(t, url, MigrateAuto)
			if c.errors != "" {
				wantError(t, err, core.ErrMisconfigured, c.errors)
				wantError(t, Migrate(t.Context(), conn, "", SchemaVersion), core.ErrMisconfigured, c.errors)
			} else {
				check(t, err)
				check(t, Migrate(t.Context(), conn, "", SchemaVersion))
			}
			equal(t, "number of warnings", strings.Count(warnings, "WARN"), min(len(c.auto), 1))
			if !strings.Contains(warnings, c.auto) {
				t.Errorf("it logged %q, want %q", warnings, c.auto)
			}
			var stays bool
			check(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_proc WHERE proname = 'of_another' AND pronamespace = 'rota'::regnamespace)").Scan(&stays))
			equal(t, "the functions of the other stay", stays, c.stays)
			check(t, Migrate(t.Context(), conn, "", 0)) // the tables are known, so they can be removed
		})
	}
}

// While an older and a newer program open the schema again and again, the functions
// become the newer one's, once.
func TestMigrateFunctionsOnce(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	conn := connect(t, url)
	check(t, Migrate(t.Context(), conn, "", SchemaVersion))
	later := fmt.Sprintf("UPDATE rota.meta SET functions = '%s'", functionSet{functionsRevision + 1, functionsSince, "other"})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 4 {
			if err := open(t, url, Options{Logger: slog.New(slog.DiscardHandler)}).Close(); err != nil {
				t.Error(err)
			}
		}
	})
	_, err := conn.Exec(t.Context(), later)
	wg.Wait()
	check(t, err)
	var functions string
	check(t, conn.QueryRow(t.Context(), "SELECT functions FROM rota.meta").Scan(&functions))
	equal(t, "revision in the end", parseFunctionSet(functions).revision, functionsRevision+1)
}
