package rotawatermill

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/rota-queue/rota/core"
)

// The metadata holds a wait twice: as a duration, and as the time when it is over,
// cut to whole seconds. The duration is exact, but it means something only for a
// message that has not waited yet; so it counts while both agree, within what
// cutting and a short way here take off.
const (
	cutOff = 1100 * time.Millisecond
	ahead  = 100 * time.Millisecond
)

// applyDelay reads the metadata of Watermill's components/delay into a job. A
// time that has passed means no delay, so a message that is published again with
// its old metadata goes out at once.
func applyDelay(meta message.Metadata, job *core.NewJob) error {
	until, wait, err := readDelay(meta)
	switch {
	case err != nil:
		return err
	case until.IsZero():
		job.Delay = max(0, wait)
	case wait > 0 && fresh(until, wait):
		// A duration is kept exactly, and counts on the store's clock only.
		job.Delay = wait
	case until.Year() >= 1970:
		job.RunAt = until.UTC()
	}
	return nil
}

// headerAsked marks a job whose delay metadata comes from an earlier nack, see
// [askedDelay].
const headerAsked = headerPrefix + "asked"

// askedDelay is the wait that a handler asked for by setting delay metadata on the
// message, as the DelayOnError middleware does. It reports false when the metadata
// is what the message came with.
func askedDelay(meta message.Metadata, job *core.Job) (time.Duration, bool) {
	until, wait, err := readDelay(meta)
	if err != nil || meta[delay.DelayedUntilKey] == "" && meta[delay.DelayedForKey] == "" {
		return 0, false
	}
	if meta[delay.DelayedUntilKey] == job.Headers[delay.DelayedUntilKey] && meta[delay.DelayedForKey] == job.Headers[delay.DelayedForKey] {
		// Short waits of one length in one second look the same each time.
		again := job.Headers[headerAsked] != "" && !until.IsZero() && fresh(until, wait)
		return max(0, wait), again
	}
	if until.IsZero() || fresh(until, wait) {
		return max(0, wait), true
	}
	return max(0, time.Until(until)), true
}

// readDelay parses the two values; the zero value stands for one that is not set.
func readDelay(meta message.Metadata) (until time.Time, wait time.Duration, err error) {
	if text := meta[delay.DelayedForKey]; text != "" {
		if wait, err = time.ParseDuration(text); err != nil {
			return until, 0, core.Invalid("metadata "+delay.DelayedForKey, text, "is not a duration")
		}
	}
	if text := meta[delay.DelayedUntilKey]; text != "" {
		if until, err = time.Parse(time.RFC3339, text); err != nil {
			return until, 0, core.Invalid("metadata "+delay.DelayedUntilKey, text, "is not a time in RFC 3339")
		}
	}
	return until, wait, nil
}

// fresh tells whether waiting from now ends at about until.
func fresh(until time.Time, wait time.Duration) bool {
	off := time.Until(until) - wait
	return off > -cutOff && off < ahead
}
