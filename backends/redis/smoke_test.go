package rotaredis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

func openShared(t testing.TB) *Backend {
	t.Helper()
	b, err := Open(t.Context(), testserver.SharedRedis(t).URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestSmoke(t *testing.T) {
	b := openShared(t)
	ctx := context.Background()
	queue := testserver.UniqueName(t)
	var jobs []core.NewJob
	for i := range 10 {
		jobs = append(jobs, core.NewJob{Queue: queue, Group: fmt.Sprintf("g%d", i%3), Payload: []byte("x")})
	}
	jobs = append(jobs, core.NewJob{Queue: queue, ID: "lone", Headers: map[string]string{"a": "b"}})
	res, err := b.Publish(ctx, core.PublishRequest{Jobs: jobs})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(res[0], res[10])
	done := 0
	for done < 11 {
		c, err := b.Claim(ctx, core.ClaimRequest{Queue: queue, Max: 5, Lease: time.Minute, Owner: "me"})
		if err != nil {
			t.Fatal(err)
		}
		var out []core.Outcome
		for _, l := range c.Leases {
			t.Logf("%+v %v %v", l.LeaseRef, l.Fence, l.Job)
			out = append(out, core.Outcome{Lease: l.LeaseRef, Action: core.Complete})
		}
		s, err := b.Settle(ctx, queue, out)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range s {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			done++
		}
		s3, err := b.Settle(ctx, queue, out[:1])
		if err != nil || s3[0].Err == nil {
			t.Fatal(err, s3)
		}
	}
	info, err := b.QueueInfo(ctx, queue)
	t.Log(info, err)
	keys, _ := b.client.Keys(ctx, "*"+queue+"*").Result()
	t.Log(keys)
}
