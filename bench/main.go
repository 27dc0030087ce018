// Command bench measures rota beside what a user would pick instead, in one run
// on one machine: each benchmark runs the peer and rota in turn (A B A B ...)
// and reports the ratio of each pair, because single figures on a shared machine
// mean little.
//
//	go run ./bench -list
//	go run ./bench                 # all of them
//	go run ./bench -only redis-drain -quick
//
// It starts private servers on loopback in temporary folders. The exit code is 1
// when a benchmark fails or misses its target.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == victimCommand {
		return runVictim(ctx, args[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.Bool("list", false, "list the benchmarks and their targets")
	only := flags.String("only", "", "run only these `names`, separated by commas")
	quick := flags.Bool("quick", false, "fewer jobs and rounds: a smoke test, not a measurement")
	out := flags.String("json", "", "write the results to this `file` too")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "bench: %q is no option; one benchmark is run with -only %s\n", flags.Arg(0), flags.Arg(0))
		return 2
	}
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 2
	}
	if *list {
		for _, b := range chosen {
			fmt.Fprintf(stdout, "%-18s %s\n", b.name, b.what)
		}
		return 0
	}
	return runAll(ctx, chosen, *quick, *out, stdout, stderr)
}

func choose(only string) ([]benchmark, error) {
	all := benchmarks()
	if only == "" {
		return all, nil
	}
	var chosen []benchmark
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(b benchmark) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no benchmark is named %q; -list shows all", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func runAll(ctx context.Context, chosen []benchmark, quick bool, out string, stdout, stderr io.Writer) int {
	code := 0
	reports := map[string]*report{}
	for _, b := range chosen {
		fmt.Fprintf(stdout, "\n%s: %s\n", b.name, b.what)
		r := &report{out: stdout}
		if err := b.run(ctx, settings{quick: quick}, r); err != nil {
			fmt.Fprintf(stderr, "bench: %s: %v\n", b.name, err)
			code = 1
		}
		if r.missed() {
			code = 1
		}
		reports[b.name] = r
	}
	if out != "" {
		data, err := json.MarshalIndent(reports, "", "  ")
		if err == nil {
			err = os.WriteFile(out, append(data, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return 1
		}
	}
	return code
}
