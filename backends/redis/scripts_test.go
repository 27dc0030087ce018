package rotaredis

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// allScripts runs a test for every script.
func allScripts(t *testing.T, test func(t *testing.T, s *script)) {
	t.Helper()
	for _, s := range []*script{
		scriptPublish, scriptPublishPlain, scriptClaim, scriptSettle, scriptExtend, scriptSave, scriptUpdate, scriptJob,
		scriptJobs, scriptGroup, scriptGroups, scriptQueueInfo, scriptStats, scriptConfigure, scriptPause, scriptAct,
		scriptMove, scriptDeleteQueue, scriptPurge, scriptEvents, scriptBind, scriptUnbind, scriptBindings,
		scriptRecordPut, scriptRecordGet, scriptRecordDelete, scriptRecords, scriptIncrement,
	} {
		t.Run(s.op, func(t *testing.T) { test(t, s) })
	}
}

// There is no Redis 6.2 to test on, so the scripts are held to its commands.
func TestScriptsUseOldCommands(t *testing.T) {
	known := strings.Fields(`DEL EXISTS EXPIRE GET GETRANGE HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSET HSETNX
		HVALS INCRBY LINDEX LINSERT LLEN LPOP LPUSH LRANGE LREM LTRIM MGET MSET PERSIST PEXPIRE PEXPIREAT PUBLISH RPUSH SADD SET SETRANGE SMEMBERS SRANDMEMBER SREM TIME UNLINK XADD
		XINFO XRANGE XTRIM ZADD ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZREM ZREMRANGEBYRANK ZREVRANGE ZSCORE`)
	commands := regexp.MustCompile(`call\('([A-Z]+)'`)
	allScripts(t, func(t *testing.T, s *script) {
		for _, m := range commands.FindAllStringSubmatch(s.text, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("the command %s is not on the list of what Redis 6.2 has; see there and add it", m[1])
			}
		}
		if strings.Contains(s.text, "#!lua") {
			t.Error("Redis 6.2 does not know the first line #!lua")
		}
	})
}

// Lua writes 1.7e15 as a text with 14 digits: tostring and .. would damage times.
func TestScriptsDoNotUseTostring(t *testing.T) {
	allScripts(t, func(t *testing.T, s *script) {
		if strings.Contains(s.text, "tostring(") {
			t.Error("tostring damages times: use int()")
		}
	})
}

// Every script compiles, and no constant is left without its value.
func TestScriptsCompile(t *testing.T) {
	client := testserver.SharedRedis(t).Client(t)
	name := regexp.MustCompile(`\b[A-Z]{5,}\b`)
	allScripts(t, func(t *testing.T, s *script) {
		sha, err := client.ScriptLoad(context.Background(), s.text).Result()
		if err != nil || sha != s.sha {
			t.Fatalf("sha %s, want %s: %v", sha, s.sha, err)
		}
		for _, n := range name.FindAllString(s.text, -1) {
			declared := regexp.MustCompile(`local [A-Z, ]*\b` + n + `\b`)
			if !strings.Contains(s.text, "'"+n) && !strings.Contains(s.text, n+"'") && !declared.MatchString(s.text) && n != "WITHSCORES" {
				t.Errorf("what is %s?", n)
			}
		}
	})
}

// Times come back to the microsecond, from the first to the last that is allowed.
func TestExactTimes(t *testing.T) {
	b := openShared(t)
	queue := testserver.UniqueName(t)
	for i, at := range []time.Time{
		time.Date(2199, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		time.Date(2149, 1, 1, 0, 0, 0, 1_000, time.UTC),
		time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC(),
	} {
		for _, scheduling := range []core.SchedulePolicy{core.Strict, core.JoinWhenDue} {
			res := put(t, b, core.NewJob{Queue: queue, Group: fmt.Sprint(i, scheduling), RunAt: at, Deadline: at, Scheduling: scheduling})
			job := must[*core.Job](t)(b.Job(t.Context(), queue, res.ID))
			if !job.RunAt.Equal(at) || !job.Deadline.Equal(at) {
				t.Errorf("run at %s, deadline %s, want %s", job.RunAt, job.Deadline, at)
			}
			if job.Seq != res.Seq || job.CreatedAt.UnixMicro() != res.Seq {
				t.Errorf("Seq %d and time of publish %d, the publish said %d", job.Seq, job.CreatedAt.UnixMicro(), res.Seq)
			}
		}
	}
	next := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: 1, Lease: time.Minute})).Next
	if d := next - time.Hour; d > 0 || d < -time.Minute {
		t.Errorf("the next is due in %s, want some less than an hour", next)
	}
}

// Fences and Seqs of a batch differ in the last of 16 digits.
func TestExactNumbers(t *testing.T) {
	b := openShared(t)
	queue := testserver.UniqueName(t)
	publishAll(t, b, grouped(queue, 1000, 1000, 0), 1000)
	res := must[core.ClaimResult](t)(b.Claim(t.Context(), core.ClaimRequest{Queue: queue, Max: 1000, Lease: time.Minute}))
	if len(res.Leases) != 1000 {
		t.Fatalf("%d leases", len(res.Leases))
	}
	for i, l := range res.Leases {
		if i > 0 && (l.Fence != res.Leases[i-1].Fence+1 || l.Job.Seq != res.Leases[i-1].Job.Seq+1) {
			t.Fatalf("lease %d: fence %d after %d, Seq %d after %d", i, l.Fence, res.Leases[i-1].Fence, l.Job.Seq, res.Leases[i-1].Job.Seq)
		}
		if l.Fence <= res.Leases[999].Job.Seq {
			t.Fatalf("fence %d is not behind the last Seq", l.Fence)
		}
	}
	info := must[core.GroupInfo](t)(b.Group(t.Context(), queue, res.Leases[7].Group))
	if info.Lease == nil || info.Lease.Fence != res.Leases[7].Fence || !info.Lease.Until.Equal(res.Leases[7].Until) {
		t.Errorf("the group shows %+v, the lease is %+v", info.Lease, res.Leases[7])
	}
	for _, want := range []int64{math.MaxInt64 - 1, math.MaxInt64} {
		delta := int64(1)
		if want == math.MaxInt64-1 {
			delta = want
		}
		if got := must[int64](t)(b.Increment(t.Context(), queue, "n", delta, 0)); got != want {
			t.Errorf("the counter is %d, want %d", got, want)
		}
	}
	_, err := b.Increment(t.Context(), queue, "n", 1, 0)
	wantError(t, err, core.ErrInvalid, "64 bits")
}
