package rotaredis

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// Lua can not unpack more than 8000 values: the greatest batches and jobs pass.
func TestLargestBatches(t *testing.T) {
	b := openShared(t)
	for _, groups := range []int{0, 1, 7000} {
		queue := testserver.UniqueName(t)
		publishAll(t, b, grouped(queue, core.MaxPublishBatch, groups, 5), core.MaxPublishBatch)
		claimed := 0
		for {
			res := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: core.MaxClaimBatch, Lease: time.Minute}))
			if len(res.Leases) == 0 || groups == 1 && claimed == 3 {
				break
			}
			claimed += len(res.Leases)
			if groups == 1 {
				settle(t, b, res.Leases[0], core.Outcome{Action: core.Complete})
			}
		}
		want := core.MaxPublishBatch
		if groups > 0 {
			want = groups
		}
		if groups != 1 && claimed != want {
			t.Errorf("%d groups: claimed %d, want %d", groups, claimed, want)
		}
	}
}

func TestLargestSettle(t *testing.T) {
	b := openShared(t)
	for _, action := range []core.Action{core.Complete, core.Retry} {
		queue := testserver.UniqueName(t)
		publishAll(t, b, grouped(queue, core.MaxSettleBatch, core.MaxSettleBatch/2, 5), 5000)
		publishAll(t, b, grouped(queue, core.MaxSettleBatch/2, 0, 5), 5000)
		var outcomes []core.Outcome
		for len(outcomes) < core.MaxSettleBatch {
			res := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: core.MaxClaimBatch, Lease: time.Minute}))
			if len(res.Leases) == 0 {
				t.Fatal("nothing to claim")
			}
			for _, l := range res.Leases {
				outcomes = append(outcomes, core.Outcome{Lease: l.LeaseRef, Action: action, Delay: time.Hour})
			}
		}
		refs := make([]core.LeaseRef, len(outcomes))
		for i := range outcomes {
			refs[i] = outcomes[i].Lease
		}
		for _, e := range must[[]core.Extension](t)(b.Extend(t.Context(), queue, refs, time.Hour)) {
			if e.Err != nil {
				t.Fatal(e.Err)
			}
		}
		for _, r := range must[[]core.SettleResult](t)(b.Settle(t.Context(), queue, outcomes)) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if got := counts(t, b, queue); got[core.StateRunning] != 0 || got[core.StatePending] != core.MaxSettleBatch/2 {
			t.Errorf("%s: %v", action, got)
		}
	}
}

// No script settles or extends more than leasesAtOnce leases, as it holds up everybody.
func TestLeasesInPieces(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	client := server.Client(t)
	const n = 2*leasesAtOnce + 500
	publishAll(t, b, grouped("q", n, n, 5), 5000)
	var outcomes []core.Outcome
	var refs []core.LeaseRef
	for len(refs) < n {
		for _, l := range must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: "q", Max: core.MaxClaimBatch, Lease: time.Minute})).Leases {
			outcomes = append(outcomes, core.Outcome{Lease: l.LeaseRef, Action: core.Complete})
			refs = append(refs, l.LeaseRef)
		}
	}
	outcomes = append(outcomes, outcomes[0]) // in another piece
	pieces := func(what string, call func()) {
		t.Helper()
		must[string](t)(client.ConfigResetStat(t.Context()).Result())
		call()
		if got := scriptCalls(t, client); got != 3 {
			t.Errorf("%s: %d scripts for %d leases, want 3", what, got, n)
		}
	}
	pieces("extend", func() {
		for i, e := range must[[]core.Extension](t)(b.Extend(t.Context(), "q", refs, time.Hour)) {
			if e.Err != nil || e.Until.IsZero() {
				t.Fatalf("lease %d: until %v, error %v", i, e.Until, e.Err)
			}
		}
	})
	pieces("settle", func() {
		for i, r := range must[[]core.SettleResult](t)(b.Settle(t.Context(), "q", outcomes)) {
			if lost := errors.Is(r.Err, core.ErrLeaseLost); lost != (i == n) || !lost && r.State != core.StateGone {
				t.Fatalf("outcome %d: %v, %v", i, r.State, r.Err)
			}
		}
	})
	if got := counts(t, b, "q"); len(got) != 0 && got[core.StatePending]+got[core.StateRunning] != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestLargestJob(t *testing.T) {
	b := openShared(t)
	queue := testserver.UniqueName(t)
	headers := map[string]string{}
	for i := range 10_000 {
		headers[fmt.Sprintf("%05d", i)] = "v"
	}
	body := bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, core.DefaultMaxPayload/4)
	put(t, b, core.NewJob{Queue: queue, Group: "g", ID: "a", Payload: body, Headers: headers})
	l := take(t, b, queue)
	if !bytes.Equal(l.Job.Payload, body) || len(l.Job.Headers) != len(headers) {
		t.Fatalf("%d bytes and %d headers came back", len(l.Job.Payload), len(l.Job.Headers))
	}
	dropped := []string{}
	for name := range headers {
		dropped = append(dropped, name)
	}
	patch := core.Patch{Payload: []byte{}, Result: body, SetHeaders: headers, DropHeaders: dropped[1:]}
	settle(t, b, l, core.Outcome{Action: core.Complete, Patch: patch})
	job := must[*core.Job](t)(b.Job(t.Context(), queue, "a"))
	if len(job.Payload) != 0 || !bytes.Equal(job.Result, body) || len(job.Headers) != 1 || job.Headers[dropped[0]] != "v" {
		t.Errorf("%d bytes, %d of result, headers %v", len(job.Payload), len(job.Result), job.Headers)
	}
	// Replacing such a job drops all of that.
	replaced := core.NewJob{Queue: queue, ID: "b", Payload: body, Headers: headers, Dedup: core.Dedup{Key: "k", OnConflict: core.ReplacePending}}
	put(t, b, replaced)
	if err := b.Update(t.Context(), queue, "b", patch, 0); err != nil {
		t.Fatal(err)
	}
	replaced.ID, replaced.Headers, replaced.Payload = "c", nil, []byte("new")
	put(t, b, replaced)
	if job = must[*core.Job](t)(b.Job(t.Context(), queue, "b")); string(job.Payload) != "new" || len(job.Headers) != 0 {
		t.Errorf("replaced: %d bytes, %d headers", len(job.Payload), len(job.Headers))
	}
}

// A claim of more than one reply should carry comes in several; a listing in
// several pages.
func TestHeavyReplies(t *testing.T) {
	b := openShared(t)
	queue := testserver.UniqueName(t)
	body := bytes.Repeat([]byte("x"), core.DefaultMaxPayload)
	const n = 80
	for i := range n {
		put(t, b, core.NewJob{Queue: queue, Group: fmt.Sprint(i), Payload: body})
	}
	listed, pages := 0, 0
	for f := (core.JobFilter{Queue: queue, State: core.StatePending, Limit: 100}); ; pages++ {
		page := must[core.JobPage](t)(b.Jobs(t.Context(), f))
		listed += len(page.Jobs)
		if f.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if listed != n || pages < 2 {
		t.Errorf("%d jobs listed in %d pages", listed, pages)
	}
	const most = 9 << 20 // of what comes in one reply, about
	claimed, claims := 0, 0
	for claimed < n {
		res := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: 100, Lease: time.Minute}))
		if len(res.Leases) == 0 {
			t.Fatalf("claimed %d of %d", claimed, n)
		}
		if bytes := len(res.Leases) * len(body); bytes > most {
			t.Errorf("one claim brought %d bytes", bytes)
		}
		claimed += len(res.Leases)
		if claims++; claimed < n && res.Next != time.Microsecond {
			t.Errorf("a claim that was cut short says that the next is due in %s", res.Next)
		}
	}
	if claims < 2 {
		t.Error("all in one claim")
	}
	if err := b.DeleteQueue(t.Context(), queue, true); err != nil {
		t.Fatal(err)
	}
}

// A cursor finds its place among many jobs of one score, also when its own job is
// gone.
func TestCursorAmongTies(t *testing.T) {
	b := openShared(t)
	queue := testserver.UniqueName(t)
	publishAll(t, b, grouped(queue, 500, 0, 0), 500)
	must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: 500, Lease: time.Hour})) // one claim time
	for _, newest := range []bool{false, true} {
		seen := map[string]bool{}
		f := core.JobFilter{Queue: queue, State: core.StateRunning, Limit: 7, Newest: newest}
		for {
			page := must[core.JobPage](t)(b.Jobs(t.Context(), f))
			for i, job := range page.Jobs {
				if seen[job.ID] {
					t.Fatalf("job %s is listed twice", job.ID)
				}
				seen[job.ID] = true
				if i == len(page.Jobs)-1 && len(seen)%3 == 0 {
					lease := core.LeaseRef{Queue: queue, JobID: job.ID, Token: tokenFor(t, b, queue, job)}
					res := must[[]core.SettleResult](t)(b.Settle(t.Context(), queue, []core.Outcome{{Lease: lease, Action: core.Complete}}))
					if res[0].Err != nil {
						t.Fatal(res[0].Err)
					}
				}
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		if left := int(counts(t, b, queue)[core.StateRunning]); len(seen) < left {
			t.Errorf("newest %v: %d jobs listed, %d are there", newest, len(seen), left)
		}
	}
}

// tokenFor finds the token of a running job without a group.
func tokenFor(t *testing.T, b *Backend, queue string, job *core.Job) string {
	t.Helper()
	lane := fmt.Sprintf("{%016d:%s", job.Seq, job.ID)
	l, err := decodeLease(must[string](t)(b.client.HGet(t.Context(), b.queueKey(queue)+"K", lane).Result()))
	if err != nil {
		t.Fatal(err)
	}
	return tokenOf(l.name, "", job.ID)
}

// Acts on many jobs in the middle of a long line do not keep the server from
// others: the work is cut into several scripts.
func TestMovesInALongLine(t *testing.T) {
	server := testserver.Redis(t)
	b := open(t, server.URL(), Options{})
	const n, acts = 60_000, 400
	for from := 0; from < n; from += 5_000 {
		jobs := make([]core.NewJob, 5_000)
		for i := range jobs {
			jobs[i] = core.NewJob{Queue: "q", Group: "g", ID: fmt.Sprint(from + i)}
		}
		must[[]core.PublishResult](t)(b.Publish(t.Context(), core.PublishRequest{Jobs: jobs}))
	}
	ids := make([]string, acts)
	for i := range ids {
		ids[i] = fmt.Sprint(n/2 + 3*i)
	}
	client := server.Client(t)
	for _, to := range []core.State{core.StateCancelled, core.StatePending} {
		if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		res := must[core.MoveResult](t)(b.Move(t.Context(), core.MoveRequest{Queue: "q", To: to, IDs: ids}))
		if res.Moved != acts || len(res.Errs) != acts {
			t.Fatalf("to %s: %d of %d moved, %d answers", to, res.Moved, acts, len(res.Errs))
		}
		if calls := scriptCalls(t, client); calls < 5 {
			t.Errorf("to %s: %d scripts, want the work in several", to, calls)
		}
	}
	// All are back at their old places.
	for next, cursor := 0, ""; ; {
		page := must[core.JobPage](t)(b.Jobs(t.Context(), core.JobFilter{Queue: "q", Group: "g", Limit: core.MaxPage, Cursor: cursor}))
		for _, job := range page.Jobs {
			if job.ID != fmt.Sprint(next) {
				t.Fatalf("job %s stands at place %d", job.ID, next)
			}
			next++
		}
		if cursor = page.Next; cursor == "" {
			if next != n {
				t.Errorf("the line has %d jobs", next)
			}
			return
		}
	}
}

// A job that comes to stand far from both ends of a very long line makes the script
// take what is behind it out and put it back.
func TestStandsInAVeryLongLine(t *testing.T) {
	server := testserver.Redis(t)
	b, client := open(t, server.URL(), Options{}), server.Client(t)
	put(t, b, core.NewJob{Queue: "q", Group: "g", ID: "x"})
	seq := must[*core.Job](t)(b.Job(t.Context(), "q", "x")).Seq
	lane := b.queueKey("q") + "gg"
	// Members without jobs will do: their places are their Seqs.
	const before, behind = 450_000, 8_500
	for from := 0; from < before; from += 5_000 {
		var members []any
		for i := range 5_000 {
			members = append(members, fmt.Sprintf("%016d:before", seq-int64(from+i+1)))
		}
		if err := client.LPush(t.Context(), lane, members...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var members []any
	for i := range behind {
		members = append(members, fmt.Sprintf("%016d:behind", seq+int64(i+1)))
	}
	if err := client.RPush(t.Context(), lane, members...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, to := range []core.State{core.StateCancelled, core.StatePending} {
		if res := must[core.MoveResult](t)(b.Move(t.Context(), core.MoveRequest{Queue: "q", To: to, IDs: []string{"x"}})); res.Moved != 1 {
			t.Fatalf("to %s: %+v", to, res)
		}
	}
	if n := must[int64](t)(client.LLen(t.Context(), lane).Result()); n != before+1+behind {
		t.Errorf("%d members stand in line, want %d", n, before+1+behind)
	}
	line := must[[]string](t)(client.LRange(t.Context(), lane, before-1, -1).Result())
	if !slices.IsSorted(line) || line[1] != fmt.Sprintf("%016d:x", seq) {
		t.Errorf("the line goes on with %v", line[:4])
	}
}

// scriptCalls counts the scripts since the counters were reset.
func scriptCalls(t *testing.T, client *redis.Client) int {
	t.Helper()
	info := must[string](t)(client.Info(t.Context(), "commandstats").Result())
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			calls, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			return calls
		}
	}
	return 0
}
