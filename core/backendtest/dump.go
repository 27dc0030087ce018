package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rota-queue/rota/core"
)

// queueDump is all that can be seen of a queue, apart from events.
type queueDump struct {
	Exists bool
	Info   core.QueueInfo
	Jobs   []*core.Job // state by state, in the order of the listings
	Groups []core.GroupInfo
	Lines  map[string][]string // ids of the jobs in line by group
}

// String renders the dump as JSON. Two dumps are equal if their strings are.
func (d *queueDump) String() string {
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		panic(err) // the types have no cycles and no channels
	}
	return string(text)
}

// readQueue reads all that can be seen of a queue. Info.Now is left out.
func readQueue(ctx context.Context, b core.Backend, queue string) (*queueDump, error) {
	d := &queueDump{Lines: map[string][]string{}}
	var err error
	switch d.Info, err = b.QueueInfo(ctx, queue); {
	case errors.Is(err, core.ErrNotFound):
		return d, nil
	case err != nil:
		return nil, err
	}
	d.Exists = true
	d.Info.Now = time.Time{}
	for state, n := range d.Info.Jobs {
		if n == 0 {
			delete(d.Info.Jobs, state)
		}
	}
	for _, state := range core.JobStates() {
		jobs, err := listJobs(ctx, b, core.JobFilter{Queue: queue, State: state})
		if err != nil {
			return nil, err
		}
		d.Jobs = append(d.Jobs, jobs...)
	}
	if d.Groups, err = listGroups(ctx, b, core.GroupFilter{Queue: queue}); err != nil {
		return nil, err
	}
	for _, g := range d.Groups {
		jobs, err := listJobs(ctx, b, core.JobFilter{Queue: queue, Group: g.Group})
		if err != nil {
			return nil, err
		}
		for _, job := range jobs {
			d.Lines[g.Group] = append(d.Lines[g.Group], job.ID)
		}
	}
	return d, nil
}

// listJobs walks over all pages of a listing.
func listJobs(ctx context.Context, b core.Inspector, f core.JobFilter) ([]*core.Job, error) {
	var jobs []*core.Job
	for {
		page, err := b.Jobs(ctx, f)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, page.Jobs...)
		if page.Next == "" {
			return jobs, nil
		}
		f.Cursor = page.Next
	}
}

// listGroups walks over all pages of a listing.
func listGroups(ctx context.Context, b core.Inspector, f core.GroupFilter) ([]core.GroupInfo, error) {
	var groups []core.GroupInfo
	for {
		page, err := b.Groups(ctx, f)
		if err != nil {
			return nil, err
		}
		groups = append(groups, page.Groups...)
		if page.Next == "" {
			return groups, nil
		}
		f.Cursor = page.Next
	}
}
