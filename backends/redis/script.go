package rotaredis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// script is a Lua program with the libraries it names in its first line,
//
//	-- lib: base queue
//
// in front of it. What stands between
//
//	-- slow: job group {
//	-- }
//
// is a function slow(), with libraries of its own: a script makes its functions
// anew in every run, and these only when it needs them. The server keeps the text
// by its SHA1.
type script struct {
	op, text, sha string
	// again tells that running the script a second time, because the answer to
	// the first was lost, does no harm.
	again bool
}

// constants comes first, as the scripts are made with it.
var (
	scriptPublish      = newScript("publish", true)
	scriptPublishPlain = newScript("publish_plain", true)
	scriptClaim        = newScript("claim", true)
	scriptSettle       = newScript("settle", true)
	scriptExtend       = newScript("extend", true)
	scriptSave         = newScript("save", true)
	scriptUpdate       = newScript("update", true)
	scriptJob          = newScript("job", true)
	scriptJobs         = newScript("jobs", true)
	scriptGroup        = newScript("group", true)
	scriptGroups       = newScript("groups", true)
	scriptQueueInfo    = newScript("queue_info", true)
	scriptStats        = newScript("stats", true)
	scriptConfigure    = newScript("configure", true)
	scriptPause        = newScript("pause", false)
	scriptAct          = newScript("act", false)
	scriptMove         = newScript("move", false)
	scriptDeleteQueue  = newScript("delete_queue", true)
	scriptPurge        = newScript("purge", true)
	scriptEvents       = newScript("events", true)
	scriptBind         = newScript("bind", true)
	scriptUnbind       = newScript("unbind", true)
	scriptBindings     = newScript("bindings", true)
	scriptRecordPut    = newScript("record_put", true)
	scriptRecordGet    = newScript("record_get", true)
	scriptRecordDelete = newScript("record_delete", false)
	scriptRecords      = newScript("records", true)
	scriptIncrement    = newScript("increment", false)
)

func newScript(name string, again bool) *script {
	text := luaFile(name)
	if libs, ok := directive(text, "lib"); ok {
		text = libraries(libs) + text
	}
	if before, rest, ok := strings.Cut(text, "-- slow: "); ok {
		libs, rest, _ := strings.Cut(rest, " {\n")
		body, after, _ := strings.Cut(rest, "\n-- }\n")
		text = before + "local made\nlocal function make()\n" + libraries(libs) + body +
			"\nend\nlocal function slow()\nif not made then made = make() end\nreturn made\nend\n" + after
	}
	text = constants(withoutComments(text))
	sum := sha1.Sum([]byte(text))
	op := strings.ReplaceAll(strings.TrimSuffix(name, "_plain"), "_", " ") // for errors
	return &script{op: op, text: text, sha: hex.EncodeToString(sum[:]), again: again}
}

// directive finds "-- name: value" in the first line.
func directive(text, name string) (string, bool) {
	line, _, _ := strings.Cut(text, "\n")
	return strings.CutPrefix(line, "-- "+name+": ")
}

func libraries(names string) string {
	var text strings.Builder
	for name := range strings.FieldsSeq(names) {
		text.WriteString(luaFile("lib_" + name))
	}
	return text.String()
}

func luaFile(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("rotaredis: " + err.Error()) // an embedded file is missing: a bug of the build
	}
	return string(text)
}

// withoutComments drops whole-line comments: the server keeps every script.
func withoutComments(text string) string {
	var slim strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
			slim.WriteString(line)
		}
	}
	return slim.String()
}

// constants replaces names in the scripts, which is faster than variables are in
// Lua, and hands them values of package core.
var constants = newConstants()

func newConstants() func(string) string {
	values := map[string]string{
		"CONFIG":          "{ " + strings.Join(configValues(core.QueueConfig{}), ", ") + " }",
		"MAXFAILURES":     strconv.Itoa(core.MaxFailures),
		"EXPIRED":         strconv.Quote(core.LeaseExpired),
		"UNLIMITED":       strconv.Itoa(unlimited),
		"ZEROS":           strconv.Quote(noTime),
		"PENDINGHEAD":     strconv.Quote(pendingHead),
		"LONGESTSHORT":    strconv.Itoa(longestShort),
		"DEFAULTATTEMPTS": strconv.Itoa(core.DefaultMaxAttempts),
		"NONE":            strconv.Quote(noRetention),
		"NEVER":           strconv.FormatInt(never, 10),
		"SKIP":            strconv.Itoa(int(core.Skip)),
		"HOLD":            strconv.Itoa(int(core.Hold)),
		"JOINWHENDUE":     strconv.Itoa(int(core.JoinWhenDue)),
		"GENERATION":      "15000000", // microseconds an answer is remembered at least
		"DAY":             "86400000000",
		"STATSTTL":        strconv.Itoa((core.StatsDays + 1) * 86400),
		"CHUNK":           "4000",
		"EFFORT":          "500000",
		"REPLYBYTES":      "8388608",  // enough for one claim, and soon sent
		"PAGEBYTES":       "16777216", // enough for one page of a listing
		"GONE":            strconv.Itoa(int(core.StateGone)),
	}
	for _, s := range core.JobStates() {
		values[strings.ToUpper(s.String())] = strconv.Itoa(int(s))
	}
	for i, name := range []string{
		"HEADSTART", "ONFAIL", "ONEXHAUST", "SCHED", "ATTEMPTS", "KEEPDONE", "KEEPDEAD", "KEEPCANCEL", "KEEPRESULT", "EVENTS",
	} {
		values[name] = strconv.Itoa(i + 1)
	}
	word := regexp.MustCompile(`\b[A-Z]{3,}\b`)
	return func(text string) string {
		return word.ReplaceAllStringFunc(text, func(name string) string {
			if value, ok := values[name]; ok {
				return value
			}
			return name
		})
	}
}

// far is "without a bound" in microseconds, small enough that now + far is exact
// in a float64. Every duration from outside is below it.
const far = int64(4e15)

// never is what the scripts use for "at no time".
const never = int64(9e15)

// configValues gives a configuration with its defaults, in the order of
// lua/lib_queue.lua.
func configValues(c core.QueueConfig) []string {
	c = c.WithDefaults()
	attempts := int64(c.MaxAttempts)
	if c.MaxAttempts == core.Unlimited {
		attempts = unlimited
	}
	// 30 years is before every other turn, and keeps new groups in their order.
	const longestHeadStart = 30 * 365 * 24 * time.Hour
	var values []string
	for _, v := range []int64{
		min(c.HeadStart, longestHeadStart).Microseconds(),
		int64(c.OnFailure), int64(c.OnExhausted), int64(c.Scheduling), min(attempts, unlimited),
		micros(c.CompletedRetention), micros(c.DeadRetention), micros(c.CancelledRetention),
		micros(c.ResultTTL), micros(c.EventTTL),
	} {
		values = append(values, strconv.FormatInt(v, 10))
	}
	return values
}

// micros turns a duration into microseconds, rounded up so that a positive one
// does not become "none".
func micros(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return min(int64((d-1)/time.Microsecond)+1, far)
}

// flag gives a yes or no as the scripts read it.
func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
