package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func init() {
	RegisterChild("counter", func() {
		for i := 0; ; i++ {
			fmt.Println(os.Getenv("PREFIX"), i)
		}
	})
	RegisterChild("half-line", func() {
		fmt.Println("whole")
		fmt.Print("half")
		os.Exit(4)
	})
	RegisterChild("panics", func() { panic("planted panic") })
	RegisterChild("races", func() { fmt.Fprintln(os.Stderr, "WARNING: DATA RACE") })
	RegisterChild("waits", func() { fmt.Println("up"); select {} })
}

func TestChildKilledInFullFlight(t *testing.T) {
	t.Parallel()
	c := Child(t, "counter", "PREFIX=n")
	for i := range 1000 {
		if line, ok := c.Next(); !ok || line != fmt.Sprint("n ", i) {
			t.Fatalf("line %d is %q, %v", i, line, ok)
		}
	}
	c.Kill()
	for i, line := range c.Rest() {
		if want := fmt.Sprint("n ", 1000+i); line != want {
			t.Fatalf("after the kill: %q, want %q", line, want)
		}
	}
	if line, ok := c.Next(); ok {
		t.Errorf("a line after the last one: %q", line)
	}
}

func TestChildHalfLineIsDropped(t *testing.T) {
	t.Parallel()
	c := Child(t, "half-line")
	if rest := c.Rest(); len(rest) != 1 || rest[0] != "whole" {
		t.Errorf("lines %q", rest)
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("ended with %v", err)
	}
}

func TestChildFailureIsReported(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"panics": "planted panic", "races": "has a data race"} {
		for _, kill := range []bool{false, true} {
			said := record(t, func(tb testing.TB) {
				c := Child(tb, name)
				<-c.proc.done
				if kill {
					c.Kill() // comes too late to be the reason
				}
			})
			if len(said) != 1 || !strings.Contains(said[0], want) {
				t.Errorf("%s: reported %q", name, said)
			}
		}
	}
	if said := record(t, func(tb testing.TB) { Child(tb, "counter").Kill() }); len(said) > 0 {
		t.Errorf("a killed child: reported %q", said)
	}
	if said := record(t, func(tb testing.TB) { Child(tb, "nobody") }); len(said) != 1 {
		t.Errorf("an unknown child: reported %q", said)
	}
}

func TestChildFreezeAndThaw(t *testing.T) {
	t.Parallel()
	c := Child(t, "waits")
	if line, _ := c.Next(); line != "up" {
		t.Fatalf("said %q", line)
	}
	state := func(want byte) {
		t.Helper()
		eventually(t, func() error {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.PID()))
			if err != nil {
				return err
			}
			if got := stat[strings.LastIndex(string(stat), ")")+2]; (got == 'T') != (want == 'T') {
				return fmt.Errorf("state %c, want %c", got, want)
			}
			return nil
		})
	}
	if err := c.Freeze(); err != nil {
		t.Fatal(err)
	}
	state('T')
	if err := c.Thaw(); err != nil {
		t.Fatal(err)
	}
	state('S')
}
