// Quickstart: a stock Watermill Router handles the events of many customers, of
// whom one floods the queue. Each customer's events are handled in order and one
// at a time, all customers get their turn, and this program checks that.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis redis://localhost:6379
//	go run ./examples/quickstart -postgres postgres://user:password@localhost:5432/database
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/backends/memory"
	rotapostgres "github.com/rota-queue/rota/backends/postgres"
	rotaredis "github.com/rota-queue/rota/backends/redis"
	"github.com/rota-queue/rota/core"
)

// options are the flags.
type options struct {
	redis     string
	postgres  string
	customers int
	events    int
	seed      uint64
}

// subscribers is how many compete for the events, as if each were a process of
// its own; each has up to inFlight customers in hand at once.
const (
	subscribers = 4
	inFlight    = 2
)

func main() {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(2)
	}
	if err := run(context.Background(), o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.StringVar(&o.redis, "redis", "", "URL of a Redis to run on, instead of memory")
	flags.StringVar(&o.postgres, "postgres", "", "URL of a PostgreSQL to run on, instead of memory; it gets a schema named rota")
	flags.IntVar(&o.customers, "customers", 200, "number of customers")
	flags.IntVar(&o.events, "events", 2000, "number of events; half of them are of one customer")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the events and handling times")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("there is no argument %q; -help lists the flags", flags.Arg(0))
	case o.redis != "" && o.postgres != "":
		return o, errors.New("-redis and -postgres exclude each other")
	case o.customers < 2 || o.events < 2*o.customers:
		return o, errors.New("at least 2 customers are needed, and 2 events for each")
	}
	return o, nil
}

// run does the whole example. Only the constructors are rota's.
func run(ctx context.Context, o options, out io.Writer) error {
	// The store: everything below is the same on each.
	backend, topic, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer backend.Close()
	defer backend.DeleteQueue(ctx, topic, true)

	// The events of one customer are a group: in order, one at a time.
	pub, err := rotawatermill.NewPublisher(backend, rotawatermill.PublisherConfig{
		GroupKey: rotawatermill.MetadataGroupKey("customer"),
	})
	if err != nil {
		return err
	}

	// A Router as in any Watermill program.
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	flood, rest := makeEvents(o)
	rec := newRecorder(len(flood) + len(rest))
	for i := range subscribers {
		sub, err := rotawatermill.NewSubscriber(backend, rotawatermill.SubscriberConfig{MaxInFlight: inFlight, Logger: logger})
		if err != nil {
			return err
		}
		router.AddConsumerHandler(fmt.Sprint("orders-", i+1), topic, sub, rec.handle)
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()

	// One customer sends half of all events in one go; then the others' come in.
	start := time.Now()
	err = publishAll(pub, topic, rec, flood, rest)
	if err == nil {
		err = rec.wait(time.Minute)
	}
	took := time.Since(start)
	if err := errors.Join(err, router.Close(), <-ended); err != nil {
		return err
	}

	// What really happened, from what the handlers wrote down.
	return rec.report(out, backend.Capabilities().Name, took)
}

// open gives the backend, and a topic that no other run uses.
func open(ctx context.Context, o options) (core.Backend, string, error) {
	topic := "quickstart-orders-" + watermill.NewShortUUID()
	switch {
	case o.redis != "":
		backend, err := rotaredis.Open(ctx, o.redis, rotaredis.Options{})
		return backend, topic, err
	case o.postgres != "":
		backend, err := rotapostgres.Open(ctx, o.postgres, rotapostgres.Options{})
		return backend, topic, err
	}
	return memory.New(memory.Options{}), "orders", nil
}

// publishAll publishes the flood with one call, and the other events one by one.
func publishAll(pub message.Publisher, topic string, rec *recorder, flood, rest []event) error {
	if err := publish(pub, topic, rec, flood...); err != nil {
		return err
	}
	for _, e := range rest {
		if err := publish(pub, topic, rec, e); err != nil {
			return err
		}
	}
	return nil
}

func publish(pub message.Publisher, topic string, rec *recorder, events ...event) error {
	var batch []*message.Message
	for _, e := range events {
		payload, err := json.Marshal(e)
		if err != nil {
			return err
		}
		msg := message.NewMessage(watermill.NewUUID(), payload)
		msg.Metadata.Set("customer", e.Customer)
		batch = append(batch, msg)
		rec.published(e)
	}
	return pub.Publish(topic, batch...)
}
