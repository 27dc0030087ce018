package rotaredis

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rota-queue/rota/core"
)

// decodeFailures makes the failures of a list of five values each.
func decodeFailures(values []any) ([]core.Failure, error) {
	if len(values) == 0 {
		return nil, nil
	}
	failures := make([]core.Failure, 0, len(values)/5)
	var d digits
	for i := 0; i+4 < len(values); i += 5 {
		failures = append(failures, core.Failure{
			Attempt: int(d.int(text(values[i]))), At: timeOf(d.int(text(values[i+1]))),
			Error: text(values[i+2]), Trace: text(values[i+3]), Worker: text(values[i+4]),
		})
	}
	return failures, d.err
}

// decodeView makes a job of what lua/lib_view.lua gives.
func decodeView(queue string, v any) (*core.Job, error) {
	parts := list(v)
	if len(parts) != 6 {
		return nil, badReply("view", v)
	}
	j := &core.Job{}
	err := decodeJob(j, queue, text(parts[0]), text(parts[1]), list(parts[2]))
	if err != nil {
		return nil, err
	}
	if j.Failures, err = decodeFailures(list(parts[3])); err != nil {
		return nil, err
	}
	if text(parts[4]) == "" {
		return j, nil
	}
	l, err := decodeLease(text(parts[4]))
	if err != nil || l.seq != j.Seq {
		return j, err
	}
	var d digits
	j.State, j.Attempt, j.ClaimedAt = core.StateRunning, l.attempt, l.claimed
	j.Lease = &core.LeaseInfo{Owner: l.owner, Until: timeOf(d.int(text(parts[5]))), Fence: l.fence}
	return j, d.err
}

// digits reads numbers and remembers the first that was none.
type digits struct{ err error }

func (d *digits) int(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil && d.err == nil {
		d.err = err
	}
	return n
}

// text gives a reply's string, or "" for none.
func text(v any) string {
	s, _ := v.(string)
	return s
}

// number gives a reply's integer, or 0.
func number(v any) int64 {
	n, _ := v.(int64)
	return n
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func badReply(what string, v any) error {
	return fmt.Errorf("redis: %s: the script answered %.100q, which is not known", what, fmt.Sprint(v))
}

// timeOf turns stored microseconds into a time; zero stays zero.
func timeOf(us int64) time.Time {
	if us <= 0 || us >= never {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
