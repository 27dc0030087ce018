package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-queue/rota/core"
)

// Publish stores a batch with one round trip for each family of queues in it; see
// core.Producer. A batch is one command to the server and runs at some 20 µs a
// job, in which nobody else is served: prefer batches of some hundred jobs.
func (b *Backend) Publish(ctx context.Context, req core.PublishRequest) ([]core.PublishResult, error) {
	if err := req.Validate(b.opts.Limits); err != nil {
		return nil, err
	}
	if err := checkBatchSize(req.Jobs); err != nil {
		return nil, err
	}
	if len(req.Jobs) == 0 {
		return nil, b.alive(ctx)
	}
	batches, err := b.split(req)
	if err != nil {
		return nil, err
	}
	if err := b.announce(ctx, req.Jobs); err != nil {
		return nil, err
	}
	replies, err := await(ctx, b, func(ctx context.Context) ([]any, error) {
		return b.runAll(ctx, batches)
	}, nil)
	if err != nil {
		return nil, err
	}
	results := make([]core.PublishResult, len(req.Jobs))
	for i, batch := range batches {
		if err := batch.decode(req.Jobs, results, replies[i]); err != nil {
			return nil, err
		}
		if err := b.announceAgain(ctx, batch.made); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// maxBatchBytes keeps a batch below what a Redis reads as one command (its
// client-query-buffer-limit is 1 GB by default).
const maxBatchBytes = 512 << 20

func checkBatchSize(jobs []core.NewJob) error {
	size := 0
	for i := range jobs {
		size += len(jobs[i].Payload)
	}
	if size > maxBatchBytes {
		return core.Invalid("batch", nil, fmt.Sprintf("of %d bytes is longer than %d bytes", size, maxBatchBytes))
	}
	return nil
}

// runAll runs the batches of several families in one pipeline, and those that
// did not come through by themselves.
func (b *Backend) runAll(ctx context.Context, batches []*batch) ([]any, error) {
	replies := make([]any, len(batches))
	done := make([]bool, len(batches))
	if len(batches) > 1 && b.opts.WaitReplicas == 0 {
		pipe := b.client.Pipeline()
		cmds := make([]command, len(batches))
		for i, t := range batches {
			cmds[i] = t.command(ctx, "evalsha", t.script.sha)
			_ = pipe.Process(ctx, cmds[i]) // only queues it
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		for i, t := range batches {
			err := cmds[i].Err()
			replies[i], done[i] = cmds[i].Val(), err == nil
			if err != nil && !t.mayRepeat(err) {
				return nil, storeError(t.script.op, err)
			}
			if err != nil && errorWord(err) != "NOSCRIPT" {
				t.args[t.retry] = "1"
			}
		}
	}
	for i, t := range batches {
		if done[i] {
			continue
		}
		var err error
		if replies[i], err = b.insist(ctx, t.call); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// announce puts the queues of a publish into the list of all queues, once for
// each queue in the life of this process. It comes before the publish, so that
// no job is in a queue that is not listed.
func (b *Backend) announce(ctx context.Context, jobs []core.NewJob) error {
	var fresh []string
	last := ""
	for i := range jobs {
		name := jobs[i].Queue
		if name == last {
			continue
		}
		last = name
		if _, known := b.announced.Load(name); !known && name != "" {
			fresh = append(fresh, name)
		}
	}
	return b.announceAgain(ctx, fresh)
}

// announceAgain puts queues into the list of all queues: those that an operation
// made, which somebody may just have deleted and unlisted.
func (b *Backend) announceAgain(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	members := make([]any, len(names))
	for i, name := range names {
		members[i] = name
	}
	_, err := await(ctx, b, func(ctx context.Context) (int64, error) {
		return b.client.SAdd(ctx, b.queuesKey(), members...).Result()
	}, nil)
	if err != nil {
		if errors.Is(err, core.ErrClosed) || ctx.Err() != nil {
			return err
		}
		return storeError("list queues", err)
	}
	for _, name := range names {
		b.announced.Store(name, true)
	}
	return nil
}

// alive answers for calls that have nothing to do.
func (b *Backend) alive(ctx context.Context) error {
	_, err := await(ctx, b, func(context.Context) (time.Time, error) { return time.Time{}, nil }, nil)
	return err
}
