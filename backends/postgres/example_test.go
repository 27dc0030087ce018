package rotapostgres_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rota-queue/rota/backends/postgres"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

func Example() {
	ctx := context.Background()
	backend, err := rotapostgres.Open(ctx, "postgres://user:password@localhost/shop", rotapostgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

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

// The job is there if and only if the order is.
func ExampleBackend_PublishTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://user:password@localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	backend, err := rotapostgres.New(ctx, pool, rotapostgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, customer) VALUES ($1, $2)", 17, "customer-1"); err != nil {
			return err
		}
		results, err := backend.PublishTx(ctx, tx, core.PublishRequest{Jobs: []core.NewJob{
			{Queue: "orders", Group: "customer-1", Payload: []byte("order 17")},
		}})
		if err != nil {
			return err
		}
		return results[0].Err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// What the handler writes and the end of its job are one: the effect on this
// database happens exactly once, whatever crashes.
func ExampleBackend_SettleTx() {
	ctx := context.Background()
	var (
		pool    *pgxpool.Pool         // of the program
		backend *rotapostgres.Backend // on the same database
	)
	ship := func(ctx context.Context, task *worker.Task) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET shipped = true WHERE id = $1", string(task.Job.Payload)); err != nil {
				return err
			}
			lease := task.Lease()
			results, err := backend.SettleTx(ctx, tx, lease.Queue, []core.Outcome{{Lease: lease, Action: core.Complete}})
			if err != nil {
				return err
			}
			return results[0].Err // core.ErrLeaseLost rolls the update back
		})
		if err != nil {
			return err // the worker retries the job
		}
		return worker.AlreadySettled() // or the worker would settle it again
	}
	w, err := worker.New(backend, worker.Config{Queues: []worker.Queue{{Name: "orders"}}, Handler: worker.HandlerFunc(ship)})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleMigrationSQL() {
	text, err := rotapostgres.MigrationSQL("", 0, rotapostgres.SchemaVersion)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(text, `CREATE SCHEMA "rota"`))
	// Output: true
}
