// Command rota looks after the stores of rota.
//
//	rota migrate    install, upgrade, check or remove the PostgreSQL schema
//
// "rota help COMMAND" tells all about one of them.
//
// Exit codes: 0 done; 1 it could not be done; 2 the command line is wrong; others
// are told by the command's help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes that all commands share.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is one of rota's commands.
type command struct {
	name    string
	summary string // half a sentence
	help    string // what the list of its flags does not say
	// flags declares the command's flags and gives what runs it once they are read.
	flags func(fs *flag.FlagSet) func(ctx context.Context, out output) error
}

// output is where a command writes: what it was asked for, and what else there is
// to say.
type output struct{ stdout, stderr io.Writer }

var commands = []command{migrateCommand}

// exitError ends the program with a code of the command's own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage is an error in the command line.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], output{os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// run is the program; it gives the exit code.
func run(ctx context.Context, args []string, out output) int {
	if len(args) == 0 {
		writeOverview(out.stderr)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 {
			writeOverview(out.stdout)
			return exitDone
		}
		name, args = args[0], []string{"-help"}
	}
	for _, c := range commands {
		if c.name == name {
			return c.run(ctx, args, out)
		}
	}
	fmt.Fprintf(out.stderr, "rota: there is no command %q; \"rota help\" lists them\n", name)
	return exitUsage
}

func (c command) run(ctx context.Context, args []string, out output) int {
	fs := flag.NewFlagSet("rota "+c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the package's own reports have many lines
	act := c.flags(fs)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.writeHelp(fs, out.stdout)
		return exitDone
	case err != nil:
		err = usage("%w; \"rota help %s\" lists the flags", err, c.name)
	case fs.NArg() > 0:
		err = usage("there is no argument %q; \"rota help %s\" lists the flags", fs.Arg(0), c.name)
	default:
		err = act(ctx, out)
	}
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(out.stderr, "rota %s: %v\n", c.name, err)
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitFailed
}

func writeOverview(w io.Writer) {
	fmt.Fprint(w, "rota looks after the stores of rota.\n\nUsage:\n\n  rota COMMAND [flags]\n\nCommands:\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\n\"rota help COMMAND\" tells all about one of them.\n")
}

func (c command) writeHelp(fs *flag.FlagSet, w io.Writer) {
	fmt.Fprintf(w, "rota %s: %s\n\nUsage:\n\n  rota %s [flags]\n\n%s\nFlags:\n\n", c.name, c.summary, c.name, c.help)
	fs.SetOutput(w)
	fs.PrintDefaults()
}
