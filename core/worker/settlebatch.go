package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-queue/rota/core"
)

// errTooLate is why an outcome is given up whose lease has ended meanwhile.
var errTooLate = errors.New("the store could not be reached before the lease ended")

// settleBatch makes one call for a batch, or several if the store calls it
// invalid. It returns the tasks for which it is not known whether they were
// settled, and which are to be tried again.
func (q *queue) settleBatch(batch []*Task) []*Task {
	results, err := q.callSettle(batch)
	switch {
	case err == nil:
		q.settleTrouble.over()
		q.settled(batch, results)
		return nil
	case errors.Is(err, core.ErrInvalid) && len(batch) > 1:
		// One outcome spoils the call: find it.
		half := len(batch) / 2
		return append(q.settleBatch(batch[:half:half]), q.settleBatch(batch[half:])...)
	case errors.Is(err, core.ErrInvalid):
		return q.refuse(batch[0], err)
	case q.w.backendClosed(err):
		q.giveUpAll(batch, err)
		return nil
	}
	if q.w.ops.Err() == nil {
		q.settleTrouble.report(err)
	}
	return batch
}

func (q *queue) callSettle(batch []*Task) ([]core.SettleResult, error) {
	outcomes := make([]core.Outcome, len(batch))
	for i, t := range batch {
		t.tries++
		outcomes[i] = t.outcome
	}
	ctx, cancel := context.WithTimeout(q.w.ops, q.w.cfg.Lease/2)
	defer cancel()
	results, err := q.w.backend.Settle(ctx, q.name, outcomes)
	if err == nil {
		err = checkCount(len(results), len(batch))
	}
	return results, err
}

func checkCount(got, want int) error {
	if got != want {
		return fmt.Errorf("the store answered %d results for %d leases", got, want)
	}
	return nil
}

// refuse handles an outcome that the store will never take, because of a result
// that is too long, say: the job becomes a dead letter that tells why.
func (q *queue) refuse(t *Task, err error) []*Task {
	if t.refused {
		q.giveUp(t, err)
		return nil
	}
	q.log.Error("rota worker: the store refused an outcome: the job becomes a dead letter",
		"job", t.Job.ID, "kind", t.Job.Kind, "action", t.outcome.Action.String(), "error", err)
	text := fmt.Sprintf("the store refused to %s the job: %v", t.outcome.Action, err)
	t.refused = true
	o := &t.outcome // its Lease is read by others and stays
	o.Action, o.Delay, o.Error, o.Trace, o.Patch = core.Dead, 0, clean(text), "", core.Patch{}
	return q.settleBatch([]*Task{t})
}

// settled notes the answers for a batch.
func (q *queue) settled(batch []*Task, results []core.SettleResult) {
	for i, t := range batch {
		q.leases.drop(t)
		action, err := t.outcome.Action, results[i].Err
		if err != nil && t.tries == 1 {
			q.loseOutcome(t, action, err)
			continue
		}
		// After a call whose answer did not arrive, a stale token most likely
		// means that it was settled by that call.
		if err != nil {
			q.log.Info("rota worker: an outcome was written by a call without an answer, or its lease was lost",
				"job", t.Job.ID, "action", action.String())
		}
		if results[i].State == core.StateDead {
			q.log.Warn("rota worker: job is a dead letter", "job", t.Job.ID, "kind", t.Job.Kind,
				"group", t.Job.Group, "attempt", t.Job.Attempt, "error", t.outcome.Error)
		}
		q.w.count.settled[action].Add(1)
		q.observe(t, action, results[i].State, err)
	}
	q.hint() // the groups are free again
	q.settledCount(len(batch))
}

// settledCount tells those who wait for outcomes to be written.
func (q *queue) settledCount(n int) {
	q.w.unsettled.Add(int64(-n))
	q.w.rouse(forSlots)
	q.w.progressed()
}

// giveUp drops an outcome that can not be written.
func (q *queue) giveUp(t *Task, err error) {
	q.leases.drop(t)
	if err == errStopped || errors.Is(err, core.ErrClosed) {
		q.w.abandoned.Add(1)
	}
	q.loseOutcome(t, t.outcome.Action, err)
	q.settledCount(1)
}

func (q *queue) giveUpAll(tasks []*Task, err error) {
	for _, t := range tasks {
		q.giveUp(t, err)
	}
}
