package rotaredis

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// Claim leases groups that are due, in one round trip; see core.Leaser. When ctx
// ends while the answer is on its way, the leases in it are given back.
func (b *Backend) Claim(ctx context.Context, req core.ClaimRequest) (core.ClaimResult, error) {
	if err := req.Validate(); err != nil {
		return core.ClaimResult{}, err
	}
	nonce := nonce()
	c := call{
		script: scriptClaim, keys: []string{b.queueKey(req.Queue)}, retry: 5,
		args: []any{req.Max, req.MinPriority, micros(req.Lease), req.Owner, nonce, "0", tens[:2*((req.Max+9)/10)], flag(req.ByTurn), b.readAtOnce()},
	}
	return await(ctx, b, func(ctx context.Context) (core.ClaimResult, error) {
		reply, err := b.insist(ctx, c)
		if err != nil {
			return core.ClaimResult{}, err
		}
		return decodeClaim(req, nonce, reply)
	}, func(res core.ClaimResult) { b.giveBack(req.Queue, res.Leases) })
}

// readAtOnce is how many jobs the script of a claim reads before it looks at their
// size: a bound for what the server has in hand when all are as large as may be.
func (b *Backend) readAtOnce() int {
	const most, inHand = 64, 64 << 20
	return max(1, min(most, inHand/max(1, b.opts.Limits.MaxPayload)))
}

// giveBack releases leases that nobody waits for any more. If it fails, they run
// out.
func (b *Backend) giveBack(queue string, leases []core.Lease) {
	if len(leases) == 0 {
		return
	}
	outcomes := make([]core.Outcome, len(leases))
	for i, l := range leases {
		outcomes[i] = core.Outcome{Lease: l.LeaseRef, Action: core.Release}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := b.insist(ctx, b.settleCall(queue, outcomes)); err != nil {
		b.opts.Logger.Warn("rota: could not give back leases of a claim that was given up; they will run out",
			"queue", queue, "leases", len(leases), "error", err)
	}
}

// Kinds of replies of lua/claim.lua.
const (
	claimNoQueue = iota
	claimPaused
	claimFresh
	claimFound
)

func decodeClaim(req core.ClaimRequest, nonce string, reply any) (core.ClaimResult, error) {
	v := list(reply)
	if len(v) == 0 {
		return core.ClaimResult{}, badReply("claim", reply)
	}
	switch number(v[0]) {
	case claimNoQueue:
		return core.ClaimResult{}, nil
	case claimPaused:
		return core.ClaimResult{}, fmt.Errorf("claim from queue %q: %w", req.Queue, core.ErrQueuePaused)
	}
	if len(v) < 6 || len(v)%2 != 0 {
		return core.ClaimResult{}, badReply("claim", reply)
	}
	now, until := timeOf(number(v[1])), timeOf(number(v[3]))
	res := core.ClaimResult{Next: time.Duration(number(v[2])) * time.Microsecond}
	special := map[int64][]any{}
	for _, s := range list(v[5]) {
		if parts := list(s); len(parts) == 3 {
			special[number(parts[0])] = parts
		}
	}
	jobs := v[6:]
	if len(jobs) > 0 {
		res.Leases = make([]core.Lease, len(jobs)/2)
	}
	// One allocation for what all leases point to.
	held := make([]struct {
		job   core.Job
		lease core.LeaseInfo
	}, len(res.Leases))
	for i := range res.Leases {
		l, j, member := &res.Leases[i], &held[i].job, text(jobs[2*i])
		if err := decodeClaimed(j, req.Queue, member, text(jobs[2*i+1]), special[int64(i+1)]); err != nil {
			return core.ClaimResult{}, err
		}
		var name string
		if number(v[0]) == claimFresh {
			name = nonce + "." + numbers[3*i:3*i+3] + "." + member[:seqDigits]
			l.Fence = number(v[4]) + int64(i)
			j.Attempt++
		} else {
			old, err := decodeLease(text(append(list(v[4]), make([]any, i+1)...)[i])) // never too short
			if err != nil {
				return core.ClaimResult{}, err
			}
			name, l.Fence, j.Attempt = old.name, old.fence, old.attempt
		}
		l.Token = tokenOf(name, j.Group, j.ID)
		l.Queue, l.Group, l.JobID, l.Until, l.Job = req.Queue, j.Group, j.ID, until, j
		j.State, j.ClaimedAt, j.Lease = core.StateRunning, now, &held[i].lease
		held[i].lease = core.LeaseInfo{Owner: req.Owner, Until: until, Fence: l.Fence}
	}
	return res, nil
}

// seqDigits is the length of the Seq in front of the colon and the id of a member
// of a sorted set.
const seqDigits = 16

// decodeClaimed fills in a job as the reply has it; special are its other things
// and failures, if there are any.
func decodeClaimed(j *core.Job, queue, member, job string, special []any) error {
	if len(member) <= seqDigits+1 {
		return badReply("claim", member)
	}
	var others, failures []any
	if special != nil {
		others, failures = list(special[1]), list(special[2])
	}
	if err := decodeJob(j, queue, member[seqDigits+1:], job, others); err != nil {
		return err
	}
	var err error
	j.Failures, err = decodeFailures(failures)
	return err
}
