package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// event is something that happened to an order.
type event struct {
	N        int    `json:"n"`        // its number in this run
	Customer string `json:"customer"` // the group
	Seq      int    `json:"seq"`      // its number among the customer's events
	Order    string `json:"order"`
	Type     string `json:"type"`
	Cents    int    `json:"cents"`
	// WorkMicros is how long handling it takes: 1 to 3 ms.
	WorkMicros int `json:"work_us"`
}

func (e event) work() time.Duration { return time.Duration(e.WorkMicros) * time.Microsecond }

// life is what happens to an order, in this order.
var life = []string{"placed", "paid", "packed", "shipped", "delivered"}

// makeEvents makes the events of a run, the same for the same options: half of
// them are of the first customer, who sends a year's orders at once; the others
// are spread over all other customers, who send theirs as they come up.
func makeEvents(o options) (flood, rest []event) {
	random := rand.New(rand.NewPCG(o.seed, 0))
	seqs := make([]int, o.customers)
	next := func(n, customer int) event {
		seq := seqs[customer]
		seqs[customer]++
		return event{
			N: n, Customer: fmt.Sprintf("customer-%03d", customer), Seq: seq,
			Order: fmt.Sprintf("%03d-%04d", customer, seq/len(life)), Type: life[seq%len(life)],
			Cents: 100 + random.IntN(50_000), WorkMicros: 1000 + random.IntN(2000),
		}
	}
	for n := range o.events / 2 {
		flood = append(flood, next(n, 0))
	}
	for n := len(flood); n < o.events; n++ {
		customer := 1 + (n-len(flood))%(o.customers-1) // each at least once
		if n-len(flood) >= o.customers-1 {
			customer = 1 + random.IntN(o.customers-1)
		}
		rest = append(rest, next(n, customer))
	}
	return flood, rest
}
