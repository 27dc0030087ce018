package faultsuite

import (
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// stranded gives what a doctor would complain about in a queue where nobody works:
// a group that has jobs, and is not held by a person or a dead job, is due before
// soon.
func stranded(groups []core.GroupInfo, soon time.Time) []Violation {
	var all []Violation
	for _, g := range groups {
		complain := func(what string) {
			all = append(all, Violation{"stranded", "", fmt.Sprintf("group %s, %d jobs, %s: %+v", g.Group, g.Depth, what, g)})
		}
		switch {
		case g.Held || g.Paused:
			if !g.DueSince.IsZero() {
				complain("is due though held or paused")
			}
		case g.Depth == 0:
			complain("has none")
		case g.Head == "":
			complain("has no head")
		case g.DueSince.IsZero():
			complain("is not due")
		case g.DueSince.After(soon):
			complain("is not due soon")
		}
	}
	return all
}

// mixedUp gives the jobs of a storm that have what belongs to others.
func mixedUp(jobs []*core.Job) []Violation {
	var all []Violation
	for _, job := range jobs {
		complain := func(format string, args ...any) {
			all = append(all, Violation{"mixed up", job.ID, "job " + job.ID + " " + fmt.Sprintf(format, args...)})
		}
		if string(job.Payload) != job.ID {
			complain("has the payload %.40q", job.Payload)
		}
		r := string(job.Result)
		if job.Result != nil && r != progressOf(job) && r != resultOf(job) {
			complain("has the result %.40q", r)
		}
		for i, f := range job.Failures {
			if i > 0 && f.Attempt < job.Failures[i-1].Attempt || f.Attempt < 1 || f.Attempt > job.Attempt || f.Error == "" || f.At.IsZero() {
				complain("with %d attempts has the failures %+v", job.Attempt, job.Failures)
				break
			}
		}
		if len(job.Failures) > job.Attempt {
			complain("has %d attempts and %d failures", job.Attempt, len(job.Failures))
		}
	}
	return all
}

// What the handlers of a storm store with a job.
func progressOf(job *core.Job) string { return "progress of " + job.ID }
func resultOf(job *core.Job) string   { return "result of " + job.ID }
