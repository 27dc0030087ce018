package rotaredis

import (
	"context"

	"github.com/rota-queue/rota/core"
)

// Move changes the state of jobs. It takes one round trip, or more when it looks at
// more than 5,000 jobs of a state or works in long lines of groups, so that the
// server serves others in between.
func (b *Backend) Move(ctx context.Context, req core.MoveRequest) (core.MoveResult, error) {
	if err := req.Validate(); err != nil {
		return core.MoveResult{}, err
	}
	if len(req.IDs) == 0 {
		return b.moveState(ctx, req)
	}
	var res core.MoveResult
	for ids := req.IDs; len(ids) > 0; ids = req.IDs[len(res.Errs):] {
		args := []any{int(req.To), 0}
		for _, id := range ids {
			args = append(args, id)
		}
		reply, err := b.ask(ctx, scriptMove, req.Queue, args...)
		if err != nil {
			return res, err
		}
		v := list(reply)
		if len(v) == 0 || len(v) > len(ids) {
			return res, badReply("move", reply)
		}
		for i := range v {
			var refusal error
			if number(v[i]) == 1 {
				res.Moved++
			} else if refusal, err = b.moveError(ctx, req.Queue, ids[i], v[i]); err != nil {
				return res, err
			}
			res.Errs = append(res.Errs, refusal)
		}
	}
	return res, nil
}

// moveError explains why a job could not be moved.
func (b *Backend) moveError(ctx context.Context, queue, id string, reply any) (refusal, err error) {
	if other, ok := reply.(string); ok {
		// The key is not part of the answer: conflicts are rare, and ids many.
		job, err := b.Job(ctx, queue, id)
		if err != nil {
			return nil, err
		}
		return &core.DuplicateError{Queue: queue, Key: job.DedupKey, ID: other}, nil
	}
	if n := number(reply); n < 0 {
		return &core.StateError{Queue: queue, ID: id, State: core.State(-n)}, nil
	}
	return notFound("job", id), nil
}

func (b *Backend) moveState(ctx context.Context, req core.MoveRequest) (core.MoveResult, error) {
	limit, _ := core.PageSize(req.Limit) // checked by Validate
	var res core.MoveResult
	for rank := int64(0); rank >= 0; {
		reply, err := b.ask(ctx, scriptMove, req.Queue, int(req.To), int(req.From), req.Group, limit-res.Moved, rank)
		if err != nil {
			return res, err
		}
		v := list(reply)
		if len(v) != 3 {
			return res, badReply("move", reply)
		}
		res.Moved += int(number(v[0]))
		res.More = number(v[1]) == 1
		rank = number(v[2])
	}
	return res, nil
}
