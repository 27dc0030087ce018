package rotapostgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rota-queue/rota/core"
)

// awaitClaim polls until the job id is claimed, or gives up after d.
func (q queue) awaitClaim(d time.Duration, id string) (time.Duration, bool) {
	q.Helper()
	start := time.Now()
	for time.Since(start) < d {
		for _, l := range q.claim(10) {
			if l.JobID == id {
				return time.Since(start), true
			}
			q.complete(l)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(start), false
}

// P4: a job whose transaction commits late has a place before that of a scheduled job which has
// joined its group meanwhile. It is found all the same.
func TestJoinBehindOpenTransaction(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"commit before claim", "commit while running"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, openShared(t))
			s := q.jobs("g", "s")
			s.Jobs[0].Delay = 300 * time.Millisecond
			q.stored(q.b.Publish(t.Context(), s))
			tx := begin(t, pgx.TxOptions{})
			q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("g", "a")))
			time.Sleep(400 * time.Millisecond)
			if when == "commit before claim" {
				// the claim that lets s join comes first, of another tier so that it leases nothing
				res, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: hour, MinPriority: 4})
				check(t, err)
				equal(t, "leases", len(res.Leases), 0)
				check(t, tx.Commit(t.Context()))
			}
			var l core.Lease
			eventually(t, "something is claimed", func() bool {
				ls := q.claim(1)
				if len(ls) == 1 {
					l = ls[0]
				}
				return len(ls) == 1
			})
			if when != "commit before claim" {
				check(t, tx.Commit(t.Context()))
			}
			q.wantNothing()
			q.complete(l)
			other := map[string]string{"a": "s", "s": "a"}[l.JobID]
			if took, ok := q.awaitClaim(5*time.Second, other); !ok {
				info, err := q.b.Group(t.Context(), q.name, "g")
				t.Errorf("%s was not claimed in %v; state %v; group %+v %v", other, took, q.state(other), info, err)
			}
		})
	}
}

// P4: the same beside a job that is redriven.
func TestRedriveBehindOpenTransaction(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	q.publish("o", "warm")
	q.complete(q.wantClaim("warm"))
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), tx, q.jobs("g", "a")))
	q.publish("g", "d")
	_, err := q.b.Settle(t.Context(), q.name, outcomes(core.Dead, q.wantClaim("d")))
	check(t, err)
	res, err := q.b.Move(t.Context(), core.MoveRequest{Queue: q.name, IDs: []string{"d"}, To: core.StatePending})
	check(t, err)
	check(t, res.Errs[0])
	l := q.wantClaim("d")
	check(t, tx.Commit(t.Context()))
	q.wantNothing()
	q.complete(l)
	if took, ok := q.awaitClaim(5*time.Second, "a"); !ok {
		t.Errorf("a was not claimed in %v; state %v", took, q.state("a"))
	}
}

// P4: a person resumes an empty group as a job is published to it.
func TestResumeMeetsPublish(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	start := time.Now()
	stranded := 0
	n := 0
	for i := 0; time.Since(start) < 3*time.Second; i++ {
		n++
		g := fmt.Sprint("g", i)
		check(t, q.b.ActOnGroup(t.Context(), q.name, g, core.PauseGroup))
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i%10) * 50 * time.Microsecond)
			q.publish(g, fmt.Sprint("j", i))
		})
		wg.Go(func() {
			time.Sleep(time.Duration(i%7) * 50 * time.Microsecond)
			err := q.b.ActOnGroup(t.Context(), q.name, g, core.ResumeGroup)
			if err != nil && !errors.Is(err, core.ErrNotFound) {
				t.Errorf("resume: %v", err)
			}
		})
		wg.Wait()
	}
	got := map[string]bool{}
	for end := time.Now().Add(5 * time.Second); len(got) < n && time.Now().Before(end); {
		ls := q.claim(500)
		for _, l := range ls {
			got[l.JobID] = true
		}
		if len(ls) == 0 {
			time.Sleep(100 * time.Millisecond)
		} else {
			q.complete(ls...)
		}
	}
	for i := range n {
		if !got[fmt.Sprint("j", i)] {
			stranded++
			if stranded < 3 {
				info, err := q.b.Group(t.Context(), q.name, fmt.Sprint("g", i))
				t.Errorf("j%d stranded: group %+v %v", i, info, err)
			}
		}
	}
	t.Logf("%d rounds, %d stranded", n, stranded)
}

// An update of a pending job that is acknowledged is what the job runs with.
func TestUpdateMeetsClaim(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	bad, both, n := 0, 0, 0
	for start := time.Now(); time.Since(start) < 3*time.Second; n++ {
		id := fmt.Sprint("j", n)
		q.stored(q.b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: q.name, Group: id, ID: id, Payload: []byte("old")}}}))
		var wg sync.WaitGroup
		var updated error
		wg.Go(func() {
			time.Sleep(time.Duration(n%8) * 50 * time.Microsecond)
			updated = q.b.Update(t.Context(), q.name, id, core.Patch{Payload: []byte("new")}, core.States(core.StatePending))
		})
		var ls []core.Lease
		wg.Go(func() {
			time.Sleep(time.Duration(n%5) * 50 * time.Microsecond)
			ls = q.claim(1)
		})
		wg.Wait()
		if len(ls) == 1 && updated == nil {
			both++
			if string(ls[0].Job.Payload) == "old" {
				bad++
			}
		}
		if updated != nil && !errors.Is(updated, core.ErrWrongState) && !errors.Is(updated, core.ErrNotFound) {
			t.Fatal(updated)
		}
		q.complete(ls...)
		if len(ls) == 0 {
			q.complete(q.claim(1)...)
		}
	}
	t.Logf("%d rounds, %d in which the job was updated and claimed", n, both)
	if bad > 0 {
		t.Errorf("%d jobs ran without an update of the pending job that was acknowledged", bad)
	}
	if both == 0 {
		t.Error("no update met a claim")
	}
}

// P6: a claim ends a lease that has run out, and can not hand out the next job, because a publish is replacing
// it. The lane is due since before the bounds of claims then, and is found as soon as the publish has ended.
func TestLaneOfLeaseThatRanOutIsNotHidden(t *testing.T) {
	t.Parallel()
	q := newQueue(t, openShared(t))
	job := func(id string, change func(*core.NewJob)) core.PublishRequest {
		req := q.jobs("g", id)
		change(&req.Jobs[0])
		return req
	}
	replacing := func(j *core.NewJob) { j.Dedup = core.Dedup{Key: "k", OnConflict: core.ReplacePending} }
	q.stored(q.b.Publish(t.Context(), job("a", func(j *core.NewJob) { j.MaxAttempts = 1 })))
	l := q.wantClaim("a")
	q.stored(q.b.Publish(t.Context(), job("b", replacing)))
	q.expire(l)
	for range 15 { // these raise the bounds, and look at nothing of the group's tier
		_, err := q.b.Claim(t.Context(), core.ClaimRequest{Queue: q.name, Max: 1, Lease: hour, MinPriority: 4})
		check(t, err)
		time.Sleep(25 * time.Millisecond)
	}
	tx := begin(t, pgx.TxOptions{})
	q.stored(q.b.PublishTx(t.Context(), tx, job("c", replacing)))
	q.wantNothing()
	equal(t, "state of the job whose lease ran out", q.state("a"), core.StateDead)
	check(t, tx.Commit(t.Context()))
	if took, ok := q.awaitClaim(10*time.Second, "b"); !ok || took > time.Second {
		t.Errorf("the next job came after %v: %v", took, ok)
	}
}
