package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// findings are the facts that the records add up to.
type findings struct {
	events, handled, twice int // published, handled at least once, handled again
	customers, outOfOrder  int // customers seen, events that started too early
	clashes, most          int // starts beside another of the customer; most at once of all

	flooder           string
	early             int     // how many events the first part of the run is
	earlyPart, allOf  float64 // the flooder's share of it, and of all
	floodWait, others waits
}

// waits are waiting times, from publish to start.
type waits struct{ median, p95 time.Duration }

// find looks through the records.
func (r *recorder) find() findings {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := findings{events: len(r.sent), clashes: r.clashes, most: r.most, flooder: "customer-000"}
	seen := make(map[int]bool, len(r.runs))
	next := map[string]int{} // by customer
	var flood, others []time.Duration
	early := 0
	f.early = len(r.runs) / 2
	for i, run := range r.runs {
		if seen[run.N] {
			f.twice++
		}
		seen[run.N] = true
		if run.Seq != next[run.Customer] {
			f.outOfOrder++
		}
		next[run.Customer] = run.Seq + 1
		if run.Customer != f.flooder {
			others = append(others, run.waited)
			continue
		}
		flood = append(flood, run.waited)
		if i < f.early {
			early++
		}
	}
	f.handled, f.customers = len(seen), len(next)
	f.earlyPart, f.allOf = share(early, f.early), share(len(flood), len(r.runs))
	f.floodWait, f.others = waitsOf(flood), waitsOf(others)
	return f
}

func share(part, of int) float64 { return 100 * float64(part) / float64(max(of, 1)) }

func waitsOf(d []time.Duration) waits {
	if len(d) == 0 {
		return waits{}
	}
	slices.Sort(d)
	return waits{d[len(d)/2], d[len(d)*95/100]}
}

// check tells what is not as promised.
func (f findings) check() error {
	var errs []error
	if f.handled != f.events {
		errs = append(errs, fmt.Errorf("%d of %d events were handled", f.handled, f.events))
	}
	if f.twice > 0 {
		errs = append(errs, fmt.Errorf("%d events were handled twice", f.twice))
	}
	if f.outOfOrder > 0 {
		errs = append(errs, fmt.Errorf("%d events started out of their customer's order", f.outOfOrder))
	}
	if f.clashes > 0 {
		errs = append(errs, fmt.Errorf("%d events started while another of their customer was at work", f.clashes))
	}
	if f.others.p95 >= f.floodWait.median {
		errs = append(errs, errors.New("the others waited as long as the flooding customer"))
	}
	return errors.Join(errs...)
}

// report prints the findings, and answers an error when a check failed.
func (r *recorder) report(out io.Writer, store string, took time.Duration) error {
	f := r.find()
	row := func(label, format string, values ...any) {
		fmt.Fprintf(out, "  %-40s"+format+"\n", append([]any{label}, values...)...)
	}
	fmt.Fprintf(out, "%d order events of %d customers, %d subscribers, store: %s, %.1f s\n\n",
		f.events, f.customers, subscribers, store, took.Seconds())
	row("events handled", "%d of %d, %d twice", f.handled, f.events, f.twice)
	row("order kept for each customer", "%d customers checked, %d violations", f.customers, f.outOfOrder)
	row("two events of one customer at once", "%d times", f.clashes)
	row("customers at work at the same time", "up to %d", f.most)
	fmt.Fprintf(out, "\nOne customer sends half of all events before the others send their first.\n\n")
	row(fmt.Sprintf("its share of the first %d handled", f.early), "%9.1f %%", f.earlyPart)
	row("its share of all", "%9.1f %%", f.allOf)
	row("waiting from publish to start", "%11s %11s", "median", "95 %")
	row(fmt.Sprintf("  the other %d customers", f.customers-1), "%11s %11s", short(f.others.median), short(f.others.p95))
	row("  that customer", "%11s %11s", short(f.floodWait.median), short(f.floodWait.p95))
	if err := f.check(); err != nil {
		return fmt.Errorf("a check failed: %w", err)
	}
	fmt.Fprintln(out, "\nall checks passed")
	return nil
}

// short prints a time with as many digits as a reader needs.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
