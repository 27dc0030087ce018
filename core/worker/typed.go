package worker

import (
	"context"
	"encoding/json"
	"fmt"
)

// Codec turns payloads into values.
type Codec interface {
	// Unmarshal decodes data into v, a pointer. It does not keep data.
	Unmarshal(data []byte, v any) error
}

// JSON is the codec of [Typed]: encoding/json.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Typed makes a handler that decodes the payload from JSON into a T. A payload
// that does not decode makes the job a dead letter at once, as no retry would
// help.
func Typed[T any](f func(ctx context.Context, task *Task, args T) error) Handler {
	return TypedWith(JSON, f)
}

// TypedWith is [Typed] with another codec.
func TypedWith[T any](codec Codec, f func(ctx context.Context, task *Task, args T) error) Handler {
	if codec == nil || f == nil {
		return nil // which New and Mux refuse
	}
	return HandlerFunc(func(ctx context.Context, task *Task) error {
		var args T
		if err := codec.Unmarshal(task.Job.Payload, &args); err != nil {
			return DeadLetter(fmt.Errorf("payload of job kind %q does not decode as %T: %w", task.Job.Kind, args, err))
		}
		return f(ctx, task, args)
	})
}
