package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds that hold on every backend. Lengths are in bytes.
const (
	MaxPriority       = 4
	MostAttempts      = 1_000_000_000
	MostPayload       = 256 << 20 // the greatest Limits.MaxPayload
	MaxQueueName      = 200
	MaxGroupName      = 512
	MaxIDLength       = 512
	MaxKindLength     = 255
	MaxDedupKey       = 512
	MaxRecordName     = 512
	MaxOwnerLength    = 255
	MaxHeaderBytes    = 64 << 10 // keys and values together
	MaxErrorText      = 8 << 10
	MaxFailures       = 50 // failures kept with a job: the latest
	MaxPublishBatch   = 10_000
	MaxClaimBatch     = 1_000
	MaxSettleBatch    = 10_000
	MaxDelay          = 100 * 365 * 24 * time.Hour
	DefaultMaxPayload = 1 << 20
)

// ErrNotPublished marks the jobs of an AllOrNothing batch that would have been
// published but for the others.
var ErrNotPublished = errors.New("not published: another job of the batch was refused")

// Limits are bounds that a backend's options set. The zero value has the
// defaults.
type Limits struct {
	// MaxPayload in bytes, for payloads and results; 0 means DefaultMaxPayload.
	MaxPayload int
}

// Validate checks the limits themselves.
func (l Limits) Validate() error {
	if l.MaxPayload < 0 || l.MaxPayload > MostPayload {
		return Invalid("limit of payloads", l.MaxPayload, fmt.Sprintf("is not between 0 and %d", MostPayload))
	}
	return nil
}

// payload gives the limit on payloads.
func (l Limits) payload() int {
	if l.MaxPayload == 0 {
		return DefaultMaxPayload
	}
	return l.MaxPayload
}

// Family is the part of a queue's name before the first "@". The queues of a
// family are stored together: one publish to several of them is atomic, and on
// Redis Cluster they share a slot.
func Family(queue string) string {
	family, _, _ := strings.Cut(queue, "@")
	return family
}

// CheckQueue checks the name of a queue or topic.
func CheckQueue(name string) error { return checkName("queue", name, MaxQueueName, true) }

// CheckGroup checks the name of a group; it must not be empty.
func CheckGroup(name string) error { return checkName("group", name, MaxGroupName, true) }

// CheckID checks the id of a job.
func CheckID(id string) error { return checkName("job id", id, MaxIDLength, true) }

// checkName checks a name. One that is not required may be left out, but no name
// that is given is blank.
func checkName(field, s string, limit int, required bool) error {
	switch {
	case s == "" && required:
		return Invalid(field, nil, "is empty")
	case len(s) > limit:
		return Invalid(field, s, fmt.Sprintf("is longer than %d bytes", limit))
	case !utf8.ValidString(s):
		return Invalid(field, s, "is not valid UTF-8")
	case strings.IndexFunc(s, unicode.IsControl) >= 0:
		return Invalid(field, s, "contains a control character")
	case s != "" && strings.TrimSpace(s) == "":
		return Invalid(field, s, "is blank")
	}
	return nil
}

// Validate checks the whole batch against the rules and limits; the error names
// the first job that breaks one, and nothing of the batch may be stored.
func (r PublishRequest) Validate(l Limits) error {
	if len(r.Jobs) > MaxPublishBatch {
		return Invalid("batch", nil, fmt.Sprintf("of %d jobs has more than %d", len(r.Jobs), MaxPublishBatch))
	}
	for i := range r.Jobs {
		if err := r.Jobs[i].validate(l); err != nil {
			if len(r.Jobs) > 1 {
				return fmt.Errorf("job %d of the batch: %w", i, err)
			}
			return err
		}
		if r.AllOrNothing && r.Jobs[i].family() != r.Jobs[0].family() {
			return Invalid("queue", r.Jobs[i].Queue+r.Jobs[i].Topic, "is not of the same family as the first job of an all-or-nothing batch")
		}
	}
	return nil
}

func (j *NewJob) family() string {
	if j.Topic != "" {
		return Family(j.Topic)
	}
	return Family(j.Queue)
}

func (j *NewJob) validate(l Limits) error {
	return firstError(
		j.checkTarget(),
		checkName("job id", j.ID, MaxIDLength, false),
		checkName("kind", j.Kind, MaxKindLength, false),
		checkName("group", j.Group, MaxGroupName, false),
		checkName("dedup key", j.Dedup.Key, MaxDedupKey, false),
		checkPayload("payload", j.Payload, l),
		checkHeaders(j.Headers),
		CheckPriority(j.Priority),
		j.checkTimes(),
		j.checkChoices(),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *NewJob) checkTarget() error {
	if j.Topic == "" {
		return CheckQueue(j.Queue)
	}
	if err := checkName("topic", j.Topic, MaxQueueName, true); err != nil || j.Queue == "" {
		return err
	}
	if Family(j.Queue) != Family(j.Topic) {
		return Invalid("queue", j.Queue, "is not of the family of its topic")
	}
	return CheckQueue(j.Queue)
}

func (j *NewJob) checkTimes() error {
	switch {
	case j.Delay < 0:
		return Invalid("delay", j.Delay, "is negative")
	case j.Delay > MaxDelay:
		return Invalid("delay", j.Delay, "is longer than 100 years")
	case j.Delay > 0 && !j.RunAt.IsZero():
		return Invalid("delay", j.Delay, "is set beside a run time")
	case !j.RunAt.IsZero() && outOfRange(j.RunAt):
		return Invalid("run time", j.RunAt, "is not between the years 1970 and 2200")
	case !j.Deadline.IsZero() && outOfRange(j.Deadline):
		return Invalid("deadline", j.Deadline, "is not between the years 1970 and 2200")
	case j.Timeout < 0:
		return Invalid("timeout", j.Timeout, "is negative")
	case j.Retention < 0 && j.Retention != None:
		return Invalid("retention", j.Retention, "is negative")
	case j.Dedup.Window < 0:
		return Invalid("dedup window", j.Dedup.Window, "is negative")
	case j.Dedup.Window > MaxDelay || j.Retention > MaxDelay:
		return Invalid("dedup window or retention", nil, "is longer than 100 years")
	}
	return nil
}

// Times are stored as microseconds since 1970; a float64, which Redis uses for
// scores, holds them exactly until 2255.
func outOfRange(t time.Time) bool { return t.Year() < 1970 || t.Year() > 2200 }

func (j *NewJob) checkChoices() error {
	switch {
	case j.MaxAttempts < Unlimited:
		return Invalid("max attempts", j.MaxAttempts, "is negative")
	case j.MaxAttempts > MostAttempts:
		return Invalid("max attempts", j.MaxAttempts, fmt.Sprintf("is more than %d", MostAttempts))
	case j.OnFailure > Skip:
		return Invalid("failure policy", uint8(j.OnFailure), "is unknown")
	case j.OnExhausted > Hold:
		return Invalid("exhausted policy", uint8(j.OnExhausted), "is unknown")
	case j.Scheduling > Strict:
		return Invalid("schedule policy", uint8(j.Scheduling), "is unknown")
	case j.Dedup.OnConflict > ReplacePending:
		return Invalid("dedup conflict", uint8(j.Dedup.OnConflict), "is unknown")
	case j.Dedup.While&^AnyState != 0:
		return Invalid("dedup states", uint16(j.Dedup.While), "has unknown bits")
	}
	return nil
}

// CheckPriority checks a priority or a priority floor.
func CheckPriority(p int) error {
	if p < 0 || p > MaxPriority {
		return Invalid("priority", p, fmt.Sprintf("is not between 0 and %d", MaxPriority))
	}
	return nil
}

func checkPayload(field string, b []byte, l Limits) error {
	if err := l.Validate(); err != nil { // a backend may have been made with any
		return err
	}
	if len(b) > l.payload() {
		return Invalid(field, nil, fmt.Sprintf("of %d bytes is longer than %d bytes", len(b), l.payload()))
	}
	return nil
}

func checkHeaders(h map[string]string) error {
	size := 0
	for k, v := range h {
		size += len(k) + len(v)
		if k == "" {
			return Invalid("header", nil, "has an empty name")
		}
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return Invalid("header", k, "is not valid UTF-8")
		}
		if strings.ContainsRune(k, 0) || strings.ContainsRune(v, 0) {
			return Invalid("header", k, "contains a NUL byte")
		}
	}
	if size > MaxHeaderBytes {
		return Invalid("headers", nil, fmt.Sprintf("of %d bytes are longer than %d bytes", size, MaxHeaderBytes))
	}
	return nil
}

// Validate checks a claim.
func (r ClaimRequest) Validate() error {
	if r.Max < 1 || r.Max > MaxClaimBatch {
		return Invalid("claim size", r.Max, fmt.Sprintf("is not between 1 and %d", MaxClaimBatch))
	}
	return firstError(
		CheckQueue(r.Queue),
		CheckPriority(r.MinPriority),
		CheckLease(r.Lease),
		checkName("owner", r.Owner, MaxOwnerLength, false),
	)
}

// CheckLease checks the length of a lease.
func CheckLease(d time.Duration) error {
	switch {
	case d < MinLease:
		return Invalid("lease", d, fmt.Sprintf("is shorter than %s", MinLease))
	case d > MaxDelay:
		return Invalid("lease", d, "is longer than 100 years")
	}
	return nil
}

// ValidateOutcomes checks a settle of one queue.
func ValidateOutcomes(queue string, outcomes []Outcome, l Limits) error {
	if err := CheckQueue(queue); err != nil {
		return err
	}
	if len(outcomes) > MaxSettleBatch {
		return Invalid("batch", nil, fmt.Sprintf("of %d outcomes has more than %d", len(outcomes), MaxSettleBatch))
	}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Lease.Queue != queue {
			return Invalid("lease", o.Lease.Queue, fmt.Sprintf("is of another queue than %q", queue))
		}
		switch {
		case o.Action < Complete || o.Action > Cancel:
			return Invalid("action", uint8(o.Action), "is unknown")
		case o.Delay < 0:
			return Invalid("delay", o.Delay, "is negative")
		case o.Delay > MaxDelay:
			return Invalid("delay", o.Delay, "is longer than 100 years")
		}
		if err := o.Patch.Validate(l); err != nil {
			return err
		}
	}
	return nil
}

// ValidateExtend checks an extension.
func ValidateExtend(queue string, leases []LeaseRef, lease time.Duration) error {
	if len(leases) > MaxSettleBatch {
		return Invalid("batch", nil, fmt.Sprintf("of %d leases has more than %d", len(leases), MaxSettleBatch))
	}
	for _, l := range leases {
		if l.Queue != queue {
			return Invalid("lease", l.Queue, fmt.Sprintf("is of another queue than %q", queue))
		}
	}
	return firstError(CheckQueue(queue), CheckLease(lease))
}

// Validate checks a patch.
func (p Patch) Validate(l Limits) error {
	return firstError(
		checkPayload("payload", p.Payload, l),
		checkPayload("result", p.Result, l),
		checkHeaders(p.SetHeaders),
	)
}

// Validate checks a configuration.
func (c QueueConfig) Validate() error {
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"head start", c.HeadStart}, {"completed retention", c.CompletedRetention},
		{"dead retention", c.DeadRetention}, {"cancelled retention", c.CancelledRetention},
		{"result time to live", c.ResultTTL}, {"event time to live", c.EventTTL},
	} {
		if d.value < 0 && d.value != None {
			return Invalid(d.field, d.value, "is negative")
		}
		if d.value > MaxDelay && d.value != Forever {
			return Invalid(d.field, d.value, "is longer than 100 years")
		}
	}
	job := NewJob{OnFailure: c.OnFailure, OnExhausted: c.OnExhausted, Scheduling: c.Scheduling, MaxAttempts: c.MaxAttempts}
	return job.checkChoices()
}

// Validate checks a move.
func (r MoveRequest) Validate() error {
	if err := CheckQueue(r.Queue); err != nil {
		return err
	}
	switch r.To {
	case StatePending, StateCancelled, StateDead, StateGone:
	default:
		return Invalid("target state", r.To.String(), "is not one of pending, cancelled, dead and gone")
	}
	if len(r.IDs) > 0 {
		if len(r.IDs) > MaxPage {
			return Invalid("batch", nil, fmt.Sprintf("of %d ids has more than %d", len(r.IDs), MaxPage))
		}
		return nil
	}
	if r.From < StateScheduled || r.From > StateCancelled {
		return Invalid("source state", r.From.String(), "is not a state a job can be in")
	}
	if r.From == r.To || r.From == StateRunning && r.To != StateCancelled {
		return Invalid("target state", r.To.String(), "can not be reached from "+r.From.String())
	}
	_, err := PageSize(r.Limit)
	return err
}

// PageSize resolves and checks the limit of a listing.
func PageSize(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultPage, nil
	case limit < 0 || limit > MaxPage:
		return 0, Invalid("limit", limit, fmt.Sprintf("is not between 1 and %d", MaxPage))
	}
	return limit, nil
}

// Validate checks a listing of jobs.
func (f JobFilter) Validate() error {
	if f.State == StateUnknown && f.Group == "" || f.State > StateCancelled {
		return Invalid("state", f.State.String(), "is not a state a job can be in")
	}
	_, err := PageSize(f.Limit)
	return firstError(CheckQueue(f.Queue), err)
}

// Validate checks a record to write.
func (p PutRecord) Validate(l Limits) error {
	switch {
	case p.TTL < 0:
		return Invalid("time to live", p.TTL, "is negative")
	case p.TTL > MaxDelay:
		return Invalid("time to live", p.TTL, "is longer than 100 years")
	case p.When > IfVersion:
		return Invalid("condition", uint8(p.When), "is unknown")
	}
	return firstError(CheckRecordName(p.Space, p.Key), checkPayload("value", p.Value, l))
}

// CheckRecordName checks the name of a record or counter.
func CheckRecordName(space, key string) error {
	return firstError(
		checkName("space", space, MaxRecordName, true),
		checkName("key", key, MaxRecordName, true),
	)
}

// CheckBinding checks a binding of a queue to a topic.
func CheckBinding(topic, queue string) error {
	if err := firstError(checkName("topic", topic, MaxQueueName, true), CheckQueue(queue)); err != nil {
		return err
	}
	if Family(topic) != Family(queue) {
		return Invalid("queue", queue, fmt.Sprintf("is not of the family of topic %q: name it topic@something", topic))
	}
	return nil
}

// CutError cuts an error text or trace at MaxErrorText bytes, at a rune's start.
func CutError(s string) string {
	if len(s) <= MaxErrorText {
		return s
	}
	cut := MaxErrorText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}
