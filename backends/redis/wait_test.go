package rotaredis

import (
	"context"
	"testing"
	"time"

	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/internal/testserver"
)

// With a replica a publish and a settle return when it has them; without one they
// tell that it has not.
func TestWaitReplicas(t *testing.T) {
	primary := testserver.Redis(t)
	replica := testserver.RedisReplica(t, primary)
	b := open(t, primary.URL(), Options{WaitReplicas: 1, WaitTimeout: 2 * time.Second})
	for range 20 {
		res := put(t, b, core.NewJob{Queue: "q"})
		text, err := replica.Client(t).Exists(context.Background(), b.queueKey("q")+"j:"+res.ID).Result()
		if err != nil || text != 1 {
			t.Fatalf("the replica lacks the acknowledged job (%v)", err)
		}
		settle(t, b, take(t, b, "q"), core.Outcome{Action: core.Complete})
	}
	hasty := open(t, primary.URL(), Options{WaitReplicas: 2, WaitTimeout: 20 * time.Millisecond})
	_, err := core.Publish(context.Background(), hasty, core.NewJob{Queue: "q"})
	wantError(t, err, core.ErrUnavailable, "acknowledged by 1 of 2 replicas")
	if n := counts(t, b, "q")[core.StatePending]; n != 1 {
		t.Errorf("%d jobs are there, want the one that no second replica has", n)
	}
	l := take(t, b, "q")
	_, err = hasty.Settle(context.Background(), "q", []core.Outcome{{Lease: l.LeaseRef, Action: core.Complete}})
	wantError(t, err, core.ErrUnavailable, "the write is in the primary")
}

func TestWaitOnCluster(t *testing.T) {
	cluster := testserver.RedisCluster(t)
	b, err := New(t.Context(), cluster.Client(t), Options{WaitReplicas: 1, WaitTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = b.Publish(t.Context(), core.PublishRequest{Jobs: []core.NewJob{{Queue: "a"}, {Queue: "b"}}})
	wantError(t, err, core.ErrUnavailable, "acknowledged by 0 of 1 replicas")
}
