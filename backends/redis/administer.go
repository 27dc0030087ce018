package rotaredis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// Configure sets a queue's configuration; see core.Administrator.
func (b *Backend) Configure(ctx context.Context, queue string, cfg core.QueueConfig) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	args := []any{encodeConfig(cfg)}
	for _, v := range configValues(cfg) {
		args = append(args, v)
	}
	reply, err := b.ask(ctx, scriptConfigure, queue, args...)
	if err != nil {
		return err
	}
	return b.announceIf(ctx, number(reply) == 1, queue)
}

// announceIf lists a queue that is new, or new to this process.
func (b *Backend) announceIf(ctx context.Context, made bool, queue string) error {
	if _, known := b.announced.Load(queue); known && !made {
		return nil
	}
	return b.announceAgain(ctx, []string{queue})
}

// encodeConfig writes a configuration as it was set, for people and decodeConfig.
func encodeConfig(c core.QueueConfig) string {
	fields := []int64{
		int64(c.HeadStart), int64(c.OnFailure), int64(c.OnExhausted), int64(c.Scheduling), int64(c.MaxAttempts),
		int64(c.CompletedRetention), int64(c.DeadRetention), int64(c.CancelledRetention), int64(c.ResultTTL), int64(c.EventTTL),
	}
	texts := make([]string, len(fields))
	for i, n := range fields {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}

func decodeConfig(s string) (core.QueueConfig, error) {
	if s == "" {
		return core.QueueConfig{}, nil
	}
	fields := strings.Split(s, ",")
	if len(fields) != 10 {
		return core.QueueConfig{}, badReply("configuration", s)
	}
	var d digits
	n := func(i int) int64 { return d.int(fields[i]) }
	c := core.QueueConfig{
		HeadStart: time.Duration(n(0)), OnFailure: core.FailurePolicy(n(1)), OnExhausted: core.ExhaustedPolicy(n(2)),
		Scheduling: core.SchedulePolicy(n(3)), MaxAttempts: int(n(4)), CompletedRetention: time.Duration(n(5)),
		DeadRetention: time.Duration(n(6)), CancelledRetention: time.Duration(n(7)), ResultTTL: time.Duration(n(8)), EventTTL: time.Duration(n(9)),
	}
	return c, d.err
}

// PauseQueue stops claims from a queue.
func (b *Backend) PauseQueue(ctx context.Context, queue string) (bool, error) {
	return b.setPaused(ctx, queue, true)
}

// ResumeQueue undoes PauseQueue.
func (b *Backend) ResumeQueue(ctx context.Context, queue string) (bool, error) {
	return b.setPaused(ctx, queue, false)
}

func (b *Backend) setPaused(ctx context.Context, queue string, paused bool) (bool, error) {
	reply, err := b.ask(ctx, scriptPause, queue, flag(paused))
	if err != nil {
		return false, err
	}
	if number(reply) < 0 {
		return false, notFound("queue", queue)
	}
	return number(reply) == 1, nil
}

// jobsPerDelete bounds how long the server is kept from others by one step of
// deleting a queue.
const jobsPerDelete = 1000

// DeleteQueue removes a queue with all it holds. A queue of up to 1,000 jobs goes
// in one step; a larger one in several, between which it can be seen half empty,
// and what is published meanwhile goes too (or, without force, stops it with
// ErrQueueNotEmpty).
func (b *Backend) DeleteQueue(ctx context.Context, queue string, force bool) error {
	for {
		reply, err := b.ask(ctx, scriptDeleteQueue, queue, flag(force), queue, jobsPerDelete)
		if err != nil {
			return err
		}
		v := append(list(reply), nil, nil) // never too short
		switch number(v[0]) {
		case -1:
			if err := b.unlist(ctx, queue); err != nil {
				return err
			}
			return notFound("queue", queue)
		case -2:
			return fmt.Errorf("queue %q holds %d unfinished jobs: %w", queue, number(v[1]), core.ErrQueueNotEmpty)
		case 1:
			return b.unlist(ctx, queue)
		}
	}
}

// unlist takes a deleted queue from the list of queues, unless somebody has made
// it again meanwhile.
func (b *Backend) unlist(ctx context.Context, queue string) error {
	b.announced.Delete(queue)
	exists, err := await(ctx, b, func(ctx context.Context) (int64, error) {
		if err := b.client.SRem(ctx, b.queuesKey(), queue).Err(); err != nil {
			return 0, storeError("delete queue", err)
		}
		n, err := b.client.Exists(ctx, b.queueKey(queue)+"m").Result()
		if err != nil {
			return 0, storeError("delete queue", err)
		}
		return n, nil
	}, nil)
	if err != nil || exists == 0 {
		return err
	}
	return b.announceAgain(ctx, []string{queue})
}

// Replies of lua/act.lua.
const (
	actNoGroup = iota
	actDone
	actMadeQueue
	actNoHead
)

// ActOnGroup does act on a group.
func (b *Backend) ActOnGroup(ctx context.Context, queue, group string, act core.GroupAct) error {
	if err := core.CheckGroup(group); err != nil {
		return err
	}
	if act < core.PauseGroup || act > core.SkipHead {
		return core.Invalid("group act", uint8(act), "is unknown")
	}
	reply, err := b.ask(ctx, scriptAct, queue, group, int(act))
	if err != nil {
		return err
	}
	if running, ok := reply.(string); ok {
		return &core.StateError{Queue: queue, ID: running, State: core.StateRunning}
	}
	switch number(reply) {
	case actNoGroup:
		return notFound("group", group)
	case actMadeQueue:
		return b.announceIf(ctx, true, queue)
	case actNoHead:
		return notFound("head of group", group)
	}
	return nil
}

// Update changes the contents of a job.
func (b *Backend) Update(ctx context.Context, queue, id string, patch core.Patch, while core.StateSet) error {
	if err := patch.Validate(b.opts.Limits); err != nil {
		return err
	}
	reply, err := b.ask(ctx, scriptUpdate, queue, appendPatch([]any{id, int(while)}, patch)...)
	if err != nil {
		return err
	}
	switch n := number(reply); {
	case n == 0:
		return notFound("job", id)
	case n < 0:
		return &core.StateError{Queue: queue, ID: id, State: core.State(-n)}
	}
	return nil
}

// Purge removes what is too old.
func (b *Backend) Purge(ctx context.Context, queue string, limit int) (int, error) {
	limit, err := core.PageSize(limit)
	if err != nil {
		return 0, err
	}
	reply, err := b.ask(ctx, scriptPurge, queue, limit)
	return int(number(reply)), err
}
