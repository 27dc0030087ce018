package rotaredis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// Settle ends leases, up to 1,000 in one round trip; see core.Leaser. When the connection
// breaks before the answer is there, the call is made again by itself and gives
// the results of the first time.
func (b *Backend) Settle(ctx context.Context, queue string, outcomes []core.Outcome) ([]core.SettleResult, error) {
	if err := core.ValidateOutcomes(queue, outcomes, b.opts.Limits); err != nil {
		return nil, err
	}
	at := mayHold(outcomes)
	states, err := b.settle(ctx, queue, pick(outcomes, at))
	if err != nil {
		return nil, err
	}
	results := make([]core.SettleResult, len(outcomes))
	for i, k := range at {
		if states[i] != 'L' {
			results[k].State = core.State(states[i] - '0')
		}
	}
	for i := range results {
		if results[i].State == 0 {
			results[i].Err = leaseLost(outcomes[i].Lease)
		}
	}
	return results, nil
}

// leasesAtOnce is how many leases one script settles or extends. A script holds up all
// clients of the server, so a larger batch is sent in pieces.
const leasesAtOnce = 1_000

// settle gives the state of each job as a digit.
func (b *Backend) settle(ctx context.Context, queue string, outcomes []core.Outcome) (string, error) {
	if len(outcomes) == 0 {
		return "", b.alive(ctx)
	}
	var states strings.Builder
	for piece := range slices.Chunk(outcomes, leasesAtOnce) {
		reply, err := b.run(ctx, b.settleCall(queue, piece))
		if err != nil {
			return "", err
		}
		if len(text(reply)) != len(piece) {
			return "", badReply("settle", reply)
		}
		states.WriteString(text(reply))
	}
	return states.String(), nil
}

// mayHold gives the indexes of the outcomes whose leases the store is to be asked
// for. The others are lost: of a lease that one before them names, which ends it or
// is lost, too, and with a token that is of no lease of the job.
func mayHold(outcomes []core.Outcome) []int {
	seen := make(map[core.LeaseRef]struct{}, len(outcomes))
	at := make([]int, 0, len(outcomes))
	for i := range outcomes {
		lease := outcomes[i].Lease
		if _, ok := seen[lease]; ok || !fits(lease) {
			continue
		}
		seen[lease] = struct{}{}
		at = append(at, i)
	}
	return at
}

func pick(outcomes []core.Outcome, at []int) []core.Outcome {
	if len(at) == len(outcomes) {
		return outcomes
	}
	picked := make([]core.Outcome, len(at))
	for i, k := range at {
		picked[i] = outcomes[k]
	}
	return picked
}

func leaseLost(l core.LeaseRef) error {
	return fmt.Errorf("job %q in queue %q: %w", l.JobID, l.Queue, core.ErrLeaseLost)
}

// settleCall lays out outcomes as lua/settle.lua reads them.
func (b *Backend) settleCall(queue string, outcomes []core.Outcome) call {
	n, key := len(outcomes), b.queueKey(queue)
	shape := shapeOf(outcomes)
	args := append(make([]any, 0, 4+4*n), nonce(), "0", n, shape)
	names := make([]leaseNames, n) // the client takes pointers, which spares an allocation each
	for i := range outcomes {
		names[i] = namesOf(outcomes[i].Lease, key)
		args = append(args, &names[i].lane)
	}
	for i := range names {
		args = append(args, &names[i].job)
	}
	if shape != settleAny {
		args = appendNonces(args, outcomes)
	} else {
		for i := range outcomes {
			args = appendOutcome(append(args, &names[i].mark), &outcomes[i])
		}
	}
	return call{script: scriptSettle, keys: []string{key}, args: args, retry: 1, write: true}
}

// appendNonces says which claim each lease is of: nonce and dot of a claim, then the
// number of the last lease in a row that is of it.
func appendNonces(args []any, outcomes []core.Outcome) []any {
	nonceOf := func(i int) string { return outcomes[i].Lease.Token[:nonceSize+1] }
	for i := range outcomes {
		if i == len(outcomes)-1 || nonceOf(i) != nonceOf(i+1) {
			args = append(args, nonceOf(i), i+1)
		}
	}
	return args
}

// Shapes of a batch that lua/settle.lua tells apart.
const (
	settleAny      = "0"
	settleComplete = "1" // all just complete
	settleGrouped  = "2" // all just complete, and are of groups
)

func shapeOf(outcomes []core.Outcome) string {
	shape := settleGrouped
	for i := range outcomes {
		if !justCompletes(&outcomes[i]) {
			return settleAny
		}
		if outcomes[i].Lease.Group == "" {
			shape = settleComplete
		}
	}
	return shape
}

// justCompletes tells outcomes that need no more words.
func justCompletes(o *core.Outcome) bool {
	return o.Action == core.Complete && emptyPatch(o.Patch)
}

func appendOutcome(args []any, o *core.Outcome) []any {
	patched := !emptyPatch(o.Patch)
	delay := (o.Action == core.Retry || o.Action == core.Snooze) && o.Delay >= time.Microsecond
	failure := o.Action != core.Complete && (o.Error != "" || o.Trace != "")
	args = append(args, settleFlags(o.Action, delay, failure, patched))
	if delay {
		args = append(args, o.Delay.Microseconds())
	}
	if failure {
		args = append(args, core.CutError(o.Error), core.CutError(o.Trace))
	}
	if patched {
		args = appendPatch(args, o.Patch)
	}
	return args
}

func settleFlags(action core.Action, delay, failure, patched bool) string {
	if action == core.Complete && !failure && !patched {
		return "1000"
	}
	return string('0'+rune(action)) + flag(delay) + flag(failure) + flag(patched)
}

func emptyPatch(p core.Patch) bool {
	return p.Payload == nil && p.Result == nil && len(p.SetHeaders) == 0 && len(p.DropHeaders) == 0
}

// appendPatch lays out a patch as lua/lib_patch.lua reads it.
func appendPatch(args []any, p core.Patch) []any {
	args = append(args, flag(p.Payload != nil)+flag(p.Result != nil), len(p.SetHeaders), len(p.DropHeaders))
	// Copies: the call may outlast its caller, see await.
	if p.Payload != nil {
		args = append(args, string(p.Payload))
	}
	if p.Result != nil {
		args = append(args, string(p.Result))
	}
	for name, value := range p.SetHeaders {
		args = append(args, name, value)
	}
	for _, name := range p.DropHeaders {
		args = append(args, name)
	}
	return args
}

// Extend prolongs leases in one round trip; see core.Leaser.
func (b *Backend) Extend(ctx context.Context, queue string, leases []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	if err := core.ValidateExtend(queue, leases, lease); err != nil {
		return nil, err
	}
	if len(leases) == 0 {
		return nil, b.alive(ctx)
	}
	results := make([]core.Extension, 0, len(leases))
	for piece := range slices.Chunk(leases, leasesAtOnce) {
		extended, err := b.extend(ctx, queue, piece, lease)
		if err != nil {
			return nil, err
		}
		results = append(results, extended...)
	}
	return results, nil
}

func (b *Backend) extend(ctx context.Context, queue string, leases []core.LeaseRef, lease time.Duration) ([]core.Extension, error) {
	args := append(make([]any, 0, 1+3*len(leases)), micros(lease))
	key := b.queueKey(queue)
	for _, l := range leases {
		if !fits(l) {
			args = append(args, "", "", "") // the lane of no lease
			continue
		}
		n := namesOf(l, key)
		args = append(args, n.lane, n.mark, l.JobID)
	}
	reply, err := b.run(ctx, call{script: scriptExtend, keys: []string{key}, args: args})
	if err != nil {
		return nil, err
	}
	parts := list(reply)
	if len(parts) != len(leases)+1 {
		return nil, badReply("extend", reply)
	}
	results := make([]core.Extension, len(leases))
	for i, v := range parts[1:] {
		if number(v) == 0 {
			results[i].Err = leaseLost(leases[i])
		} else {
			results[i] = core.Extension{Until: timeOf(number(parts[0])), CancelRequested: number(v) == 2}
		}
	}
	return results, nil
}

// Save changes a running job; see core.Leaser.
func (b *Backend) Save(ctx context.Context, lease core.LeaseRef, patch core.Patch) error {
	if err := patch.Validate(b.opts.Limits); err != nil {
		return err
	}
	if err := core.CheckQueue(lease.Queue); err != nil {
		return err
	}
	if !fits(lease) {
		if err := b.alive(ctx); err != nil {
			return err
		}
		return leaseLost(lease)
	}
	key := b.queueKey(lease.Queue)
	n := namesOf(lease, key)
	args := appendPatch([]any{n.lane, n.mark, lease.JobID}, patch)
	reply, err := b.run(ctx, call{script: scriptSave, keys: []string{key}, args: args})
	if err != nil {
		return err
	}
	if number(reply) == 0 {
		return leaseLost(lease)
	}
	return nil
}
