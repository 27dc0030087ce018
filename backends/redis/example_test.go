package rotaredis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/rota-queue/rota/backends/redis"
	"github.com/rota-queue/rota/core"
)

func Example() {
	ctx := context.Background()
	backend, err := rotaredis.Open(ctx, "redis://localhost:6379/0", rotaredis.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	// Two orders of one customer, in order; another customer's beside them.
	_, err = backend.Publish(ctx, core.PublishRequest{Jobs: []core.NewJob{
		{Queue: "orders", Group: "customer-1", Payload: []byte("order 1")},
		{Queue: "orders", Group: "customer-1", Payload: []byte("order 2")},
		{Queue: "orders", Group: "customer-2", Payload: []byte("order 3")},
	}})
	if err != nil {
		log.Fatal(err)
	}

	// Programs use package worker; this is what it does.
	claimed, err := backend.Claim(ctx, core.ClaimRequest{Queue: "orders", Max: 10, Lease: 30 * time.Second, Owner: "example"})
	if err != nil {
		log.Fatal(err)
	}
	var outcomes []core.Outcome
	for _, lease := range claimed.Leases {
		fmt.Printf("%s: %s\n", lease.Group, lease.Job.Payload)
		outcomes = append(outcomes, core.Outcome{Lease: lease.LeaseRef, Action: core.Complete})
	}
	if _, err := backend.Settle(ctx, "orders", outcomes); err != nil {
		log.Fatal(err)
	}
}
