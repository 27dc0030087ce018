package rotapostgres

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"

	"github.com/rota-queue/rota/core"
)

//go:embed sql/*.sql
var sources embed.FS

// schemaVersion is the version of the tables. It grows by one with each entry of
// migrations.
const schemaVersion = 1

// functionsRevision grows with each release that changes the functions, so that an
// older program knows newer functions and leaves them in place. functionsSince is
// the oldest revision whose programs the functions still serve: it stays when all
// they call is there with the same parameters and meaning, else it becomes
// functionsRevision, and those programs refuse to open.
const (
	functionsRevision = 1
	functionsSince    = 1
)

// migrations change the tables, one version after the other. The functions are
// replaced as a whole whenever the schema is migrated.
var migrations = []struct {
	up, down string // files in sql/
}{
	{up: "tables.sql", down: "drop.sql"},
}

// functionFiles are in the order of their dependencies.
var functionFiles = []string{
	"time.sql", "lane.sql", "finish.sql", "bounds.sql", "join.sql", "claim.sql", "settle.sql", "publish.sql", "publish_rules.sql",
	"move.sql", "queue.sql", "look.sql", "purge.sql", "records.sql", "hint.sql",
}

func source(name string) string {
	text, err := sources.ReadFile("sql/" + name)
	if err != nil {
		panic(err) // embedded: it is there
	}
	return string(text)
}

var schemaDot = regexp.MustCompile(`\brota\.`)

// render puts the schema's name into SQL that says rota.
func render(schema, sql string) string {
	sql = schemaDot.ReplaceAllString(sql, `"`+schema+`".`)
	sql = strings.ReplaceAll(sql, "@channel@", channelOf(schema))
	sql = strings.ReplaceAll(sql, "@plans@", plansSQL)
	return strings.ReplaceAll(sql, "@lease_expired@", core.LeaseExpired)
}

// plansSQL stands behind every function that a program calls and that reads jobs or
// lanes. A session keeps the first plan of a statement, and makes it while tables
// may be empty or their statistics of another time: then all ways cost the same. What is
// left when these are off is the way through the index that has the order asked for.
const plansSQL = "SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_incremental_sort = off " +
	"SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan"

// channelOf is the name that hints are sent under.
func channelOf(schema string) string { return "rota_wake_" + schema }

// functionsSQL is the definition of all functions.
func functionsSQL(schema string) string {
	var b strings.Builder
	for _, name := range functionFiles {
		b.WriteString(render(schema, source(name)))
		b.WriteByte('\n')
	}
	return b.String()
}

// functionsDigest tells one set of functions from another: by their files, and by
// what render makes of all that it knows. Each Open asks for it several times; to
// render the files would take milliseconds.
var functionsDigest = sync.OnceValue(func() string {
	h := sha256.New()
	for _, name := range functionFiles {
		h.Write([]byte(source(name)))
	}
	h.Write([]byte(render(DefaultSchema, "rota. @channel@ @plans@ @lease_expired@")))
	return hex.EncodeToString(h.Sum(nil)[:8])
})
