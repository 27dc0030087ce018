package rotaredis

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-queue/rota/core"
)

// A job in Redis is one text: a head of digits that the scripts read and change in
// place, then group, kind and contents. lua/lib_job.lua has the places, from 1.
const (
	atState      = 0
	atFlags      = 1
	atAttempt    = 2
	atClaimed    = 10
	atSeq        = 26
	atTier       = 42
	atAttempts   = 43
	atOnFailure  = 53
	atOnExhaust  = 54
	atScheduling = 55
	atRetention  = 56
	atRunAt      = 72
	atPlace      = 88
	atFinished   = 104
	atLengths    = 120
	headSize     = 126
)

// A short text, of a job to which nothing was done, has state, Seq, settings and
// lengths only.
const (
	atShortLengths = 31
	shortHeadSize  = 37
	short          = '0' // its state
	// longestShort bounds the size of a job, about, that has a short text: making a
	// long one of it takes all of it through a script.
	longestShort = 4096
)

// pendingHead is how a long text begins that says no more than a short one.
const pendingHead = "20" + "00000000" + noTime

// Values of fields in the head that are no numbers.
const (
	unlimited   = 9_999_999_999      // attempts
	noRetention = "9999999999999999" // core.None
	noTime      = "0000000000000000"
)

// contentsVersion is the first byte of the contents, which only Go reads.
const contentsVersion = 1

// needsLong tells whether a job without delay and dedup key needs a long text.
func needsLong(n *core.NewJob) bool {
	size := len(n.Payload)
	for name, value := range n.Headers {
		size += len(name) + len(value)
	}
	return n.Retention != 0 || size > longestShort
}

// encodeRest writes a job from the tier on: settings, times, the lengths of group
// and kind, these, and the contents. Seq and what comes before are the store's.
func encodeRest(n *core.NewJob, long bool) []byte {
	size := headSize - atTier + len(n.Group) + len(n.Kind) + 1 + 3*binary.MaxVarintLen64 + len(n.Payload) + 1
	names := make([]string, 0, len(n.Headers))
	for name, value := range n.Headers {
		names = append(names, name)
		size += len(name) + len(value) + 2*binary.MaxVarintLen64
	}
	slices.Sort(names)
	t := make([]byte, 0, size)
	t = appendSettings(t, n)
	if long {
		t = appendRetention(t, n.Retention)
		t = append(t, noTime+noTime+noTime...) // run at, place, finished at
	}
	t = appendDigits(t, int64(len(n.Group)), 3)
	t = appendDigits(t, int64(len(n.Kind)), 3)
	t = append(t, n.Group...)
	t = append(t, n.Kind...)
	t = append(t, contentsVersion)
	t = binary.AppendUvarint(t, uint64(n.Timeout))
	deadline := uint64(0)
	if !n.Deadline.IsZero() {
		deadline = uint64(n.Deadline.UnixMicro()) + 1
	}
	t = binary.AppendUvarint(t, deadline)
	t = binary.AppendUvarint(t, uint64(len(names)))
	for _, name := range names {
		t = appendString(t, name)
		t = appendString(t, n.Headers[name])
	}
	if n.Payload == nil {
		return append(t, 0)
	}
	return append(append(t, 1), n.Payload...)
}

// usualSettings are those of a job of tier 0 that brings none of its own.
const usualSettings = "0" + "0000000025" + "000"

// appendSettings writes the tier and what the job says of attempts and policies. The
// scripts put in the queue's number of attempts where the job has
// none and the queue's is not the default.
func appendSettings(t []byte, n *core.NewJob) []byte {
	if n.Priority == 0 && n.MaxAttempts == 0 && n.OnFailure == 0 && n.OnExhausted == 0 && n.Scheduling == 0 {
		return append(t, usualSettings...)
	}
	attempts := int64(n.MaxAttempts)
	switch n.MaxAttempts {
	case 0:
		attempts = core.DefaultMaxAttempts
	case core.Unlimited:
		attempts = unlimited
	}
	t = append(t, '0'+byte(n.Priority))
	t = appendDigits(t, min(attempts, unlimited), 10)
	return append(t, '0'+byte(n.OnFailure), '0'+byte(n.OnExhausted), '0'+byte(n.Scheduling))
}

func appendRetention(t []byte, d time.Duration) []byte {
	if d < 0 {
		return append(t, noRetention...)
	}
	return appendDigits(t, micros(d), 16)
}

func appendString(t []byte, s string) []byte {
	return append(binary.AppendUvarint(t, uint64(len(s))), s...)
}

func appendDigits(t []byte, n int64, width int) []byte {
	s := strconv.FormatInt(n, 10)
	for range width - len(s) {
		t = append(t, '0')
	}
	return append(t, s...)
}

// decodeJob fills in a job from its text and the other things kept of it.
func decodeJob(j *core.Job, queue, id, text string, others []any) error {
	r := reader{rest: text}
	var head string
	if text != "" && text[0] == short {
		if head = r.take(shortHeadSize); !r.bad {
			head = pendingHead + head[1:atShortLengths] + noTime + noTime + noTime + noTime + head[atShortLengths:]
		}
	} else {
		head = r.take(headSize)
	}
	if r.bad {
		return damaged(queue, id)
	}
	var d digits
	group := r.take(int(d.int(head[atLengths : atLengths+3])))
	kind := r.take(int(d.int(head[atLengths+3:])))
	seq := d.int(head[atSeq:atTier])
	*j = core.Job{
		ID: id, Queue: queue, Group: group, Kind: kind, Seq: seq, CreatedAt: timeOf(seq), RunAt: timeOf(seq),
		State: core.State(head[atState] - '0'), Attempt: int(d.int(head[atAttempt:atClaimed])),
		Priority: int(head[atTier] - '0'), MaxAttempts: int(d.int(head[atAttempts:atOnFailure])),
		OnFailure:   core.FailurePolicy(head[atOnFailure] - '0'),
		OnExhausted: core.ExhaustedPolicy(head[atOnExhaust] - '0'),
		Scheduling:  core.SchedulePolicy(head[atScheduling] - '0'),
	}
	if claimed := head[atClaimed:atSeq]; claimed != noTime {
		j.ClaimedAt = timeOf(d.int(claimed))
	}
	if runAt := head[atRunAt:atPlace]; runAt != noTime {
		j.RunAt = timeOf(d.int(runAt))
	}
	if finished := head[atFinished:atLengths]; finished != noTime {
		j.FinishedAt = timeOf(d.int(finished))
	}
	if j.MaxAttempts == unlimited {
		j.MaxAttempts = core.Unlimited
	}
	switch retention := head[atRetention:atRunAt]; retention {
	case noTime:
	case noRetention:
		j.Retention = core.None
	default:
		j.Retention = time.Duration(d.int(retention)) * time.Microsecond
	}
	r.contents(j)
	if r.bad || d.err != nil {
		return damaged(queue, id)
	}
	applyOthers(j, others)
	return nil
}

func damaged(queue, id string) error {
	return fmt.Errorf("redis: job %q in queue %q is damaged", id, queue)
}

// reader takes a text apart.
type reader struct {
	rest string
	bad  bool
}

func (r *reader) take(n int) string {
	if n < 0 || n > len(r.rest) {
		r.bad = true
		n = 0
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reader) uvarint() uint64 {
	var n uint64
	for shift := 0; shift < 64; shift += 7 {
		b := r.take(1)
		if r.bad {
			return 0
		}
		n |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return n
		}
	}
	r.bad = true
	return 0
}

func (r *reader) string() string { return r.take(int(min(r.uvarint(), 1<<32))) }

// contents reads what encodeRest wrote behind group and kind.
func (r *reader) contents(j *core.Job) {
	if version := r.take(1); r.bad || version[0] != contentsVersion {
		r.bad = true
		return
	}
	j.Timeout = time.Duration(r.uvarint())
	if deadline := r.uvarint(); deadline != 0 {
		j.Deadline = time.UnixMicro(int64(deadline - 1)).UTC()
	}
	if n := r.uvarint(); n > 0 {
		j.Headers = map[string]string{}
		for ; n > 0 && !r.bad; n-- {
			name := r.string()
			j.Headers[name] = r.string()
		}
	}
	if has := r.take(1); !r.bad && has[0] == 1 {
		j.Payload = []byte(r.rest)
	}
}

// applyOthers adds the fields of the hash beside the job.
func applyOthers(j *core.Job, fields []any) {
	for i := 0; i+1 < len(fields); i += 2 {
		value := text(fields[i+1])
		switch name := text(fields[i]); name {
		case "x":
			j.CancelRequested = true
		case "d":
			j.DedupKey = value
		case "y":
			j.Result = []byte(value)
		case "p":
			j.Payload = []byte(value)
		default:
			if header, set := strings.CutPrefix(name, "h:"); set {
				if j.Headers == nil {
					j.Headers = map[string]string{}
				}
				j.Headers[header] = value
			} else if header, drop := strings.CutPrefix(name, "H:"); drop {
				delete(j.Headers, header)
			}
		}
	}
}

// A lease in Redis is one text, too; lua/lib_job.lua has the places.
const (
	leaseFence   = 2
	leaseClaimed = 18
	leaseAttempt = 34
	leaseNonce   = 42
	leaseNumber  = 63
	leaseSeq     = 67
	leaseID      = 84
	nonceSize    = leaseNumber - leaseNonce - 1
	nameSize     = leaseID - 1 - leaseNonce
	tokenSize    = nameSize + 8
)

// lease is what the text of a lease says.
type lease struct {
	name, id, owner string
	fence, seq      int64
	claimed         time.Time
	attempt         int
}

// decodeLease takes the text of a lease apart.
func decodeLease(s string) (lease, error) {
	if len(s) < leaseID {
		return lease{}, badReply("lease", s)
	}
	id, owner, _ := strings.Cut(s[leaseID:], "\n")
	var d digits
	l := lease{
		name: s[leaseNonce : leaseID-1], id: id, owner: owner, seq: d.int(s[leaseSeq : leaseID-1]),
		fence:   d.int(s[leaseFence:leaseClaimed]) + d.int(s[leaseNumber:leaseNumber+3]),
		claimed: timeOf(d.int(s[leaseClaimed:leaseAttempt])), attempt: int(d.int(s[leaseAttempt:leaseNonce])),
	}
	return l, d.err
}

// tokenOf gives the token of a lease: the name its text has at leaseNonce (the
// nonce of the claim, the number of the lease in it, and the job's Seq, by which the
// scripts find the job's place in their sets) and a sum of the name and of what it
// is the lease of. The sum tells a token that was changed or is of another group
// or job; the scripts then need no more than the nonce, as a claim leases no lane
// twice.
func tokenOf(name, group, id string) string {
	return string(appendHex(append(make([]byte, 0, tokenSize), name...), sumOf(name, group, id)))
}

func appendHex(t []byte, sum uint32) []byte {
	return hex.AppendEncode(t, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

func sumOf(name, group, id string) uint32 {
	t := append(make([]byte, 0, 256), name...)
	t = append(append(t, group...), '\n')
	return crc32.Checksum(append(t, id...), castagnoli)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fits tells whether the token is one of a lease of this group and job.
func fits(l core.LeaseRef) bool {
	if len(l.Token) != tokenSize {
		return false
	}
	sum := sumOf(l.Token[:nameSize], l.Group, l.JobID)
	return string(appendHex(make([]byte, 0, 8), sum)) == l.Token[nameSize:]
}

// tens has the numbers from 00 to 99.
var tens = func() string {
	var all []byte
	for i := range core.MaxClaimBatch / 10 {
		all = appendDigits(all, int64(i), 2)
	}
	return string(all)
}()

// numbers has the numbers from 000 to 999.
var numbers = func() string {
	var all []byte
	for i := range core.MaxClaimBatch {
		all = appendDigits(all, int64(i), 3)
	}
	return string(all)
}()

// leaseNames is what the scripts know a lease by.
type leaseNames struct {
	lane string // the lane it is of
	mark string // what its text has at leaseNonce if it is still the holder's
	job  string // the job's key
}

// namesOf makes the names of a lease that fits with one allocation, as there are
// many. queueKey is the prefix of the queue.
func namesOf(l core.LeaseRef, queueKey string) leaseNames {
	name := l.Token[:nameSize]
	var all string
	lane := len(queueKey) + 1 + len(l.Group)
	if l.Group != "" {
		all = queueKey + "g" + l.Group + name + ":" + l.JobID + "\n" + queueKey + "j:" + l.JobID
	} else {
		all = "{" + name[nameSize-seqDigits:] + ":" + l.JobID + name + ":" + l.JobID + "\n" + queueKey + "j:" + l.JobID
		lane = 1 + seqDigits + 1 + len(l.JobID)
	}
	mark := lane + nameSize + 1 + len(l.JobID) + 1
	return leaseNames{lane: all[:lane], mark: all[lane:mark], job: all[mark:]}
}
