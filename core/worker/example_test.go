package worker_test

import (
	"context"
	"fmt"

	"github.com/rota-queue/rota/backends/memory"
	"github.com/rota-queue/rota/core"
	"github.com/rota-queue/rota/core/worker"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	store := memory.New(memory.Options{})
	defer store.Close()

	// Orders of one customer are handled one at a time, in the order in which they
	// came in; those of different customers at the same time.
	for i := 1; i <= 3; i++ {
		_, err := core.Publish(ctx, store, core.NewJob{
			Queue: "orders", Group: "customer-7", Kind: "ship",
			Payload: fmt.Appendf(nil, `{"order": %d}`, i),
		})
		if err != nil {
			panic(err)
		}
	}

	type order struct {
		Order int `json:"order"`
	}
	var mux worker.Mux
	mux.On("ship", worker.Typed(func(_ context.Context, task *worker.Task, o order) error {
		fmt.Printf("ship order %d of %s\n", o.Order, task.Job.Group)
		if o.Order == 3 {
			cancel() // for the example: nothing more to do
		}
		return nil
	}))

	w, err := worker.New(store, worker.Config{
		Queues:  []worker.Queue{{Name: "orders"}},
		Handler: &mux,
	})
	if err != nil {
		panic(err)
	}
	if err := w.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// ship order 1 of customer-7
	// ship order 2 of customer-7
	// ship order 3 of customer-7
}
