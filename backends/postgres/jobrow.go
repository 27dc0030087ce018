package rotapostgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// jobRow is a job as the server gives it.
type jobRow struct {
	seq, runAt, createdAt               *int64
	id, group, kind, headers, failures  *string
	dedupKey                            *string
	payload, result                     []byte
	priority, attempt, maxAttempts      *int32
	timeout, deadline, retention        *int64
	onFailure, onExhausted, scheduling  *int32
	state                               int32
	claimedAt, finishedAt, fence, until *int64
	owner                               *string
	cancel                              bool
	score                               int64
}

func num[T int32 | int64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}

func (r *jobRow) job(queue string) (*core.Job, error) {
	j := &core.Job{
		ID: text(r.id), Queue: queue, Kind: text(r.kind), Payload: r.payload, Group: text(r.group), Priority: int(num(r.priority)),
		State: core.State(r.state), Attempt: int(num(r.attempt)), MaxAttempts: int(num(r.maxAttempts)), Seq: num(r.seq),
		RunAt: timeOf(num(r.runAt)), Timeout: time.Duration(num(r.timeout)), Deadline: timeOf(num(r.deadline)), Retention: time.Duration(num(r.retention)),
		OnFailure: core.FailurePolicy(num(r.onFailure)), OnExhausted: core.ExhaustedPolicy(num(r.onExhausted)), Scheduling: core.SchedulePolicy(num(r.scheduling)),
		CreatedAt: timeOf(num(r.createdAt)), ClaimedAt: timeOf(num(r.claimedAt)), FinishedAt: timeOf(num(r.finishedAt)),
		CancelRequested: r.cancel, Result: r.result, DedupKey: text(r.dedupKey),
	}
	if len(j.Payload) == 0 {
		j.Payload = nil
	}
	if r.headers != nil {
		if err := json.Unmarshal([]byte(*r.headers), &j.Headers); err != nil {
			return nil, fmt.Errorf("postgres: headers of job %q: %w", j.ID, err)
		}
	}
	if r.failures != nil {
		var err error
		if j.Failures, err = decodeFailures(*r.failures); err != nil {
			return nil, fmt.Errorf("postgres: failures of job %q: %w", j.ID, err)
		}
	}
	return j, nil
}

func decodeFailures(text string) ([]core.Failure, error) {
	var stored []struct {
		Attempt int    `json:"n"`
		At      int64  `json:"at"`
		Error   string `json:"e"`
		Trace   string `json:"t"`
		Worker  string `json:"w"`
	}
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	failures := make([]core.Failure, len(stored))
	for i, f := range stored {
		failures[i] = core.Failure{Attempt: f.Attempt, At: timeOf(f.At), Error: f.Error, Trace: f.Trace, Worker: f.Worker}
	}
	return failures, nil
}
