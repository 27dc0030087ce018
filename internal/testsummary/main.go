// Command testsummary reads the output of go test -json on standard input and
// writes what a person or a build log needs of it: each package's result, all
// output of what failed, the skipped tests with their reasons, and a last line
//
//	N passed, N failed, N skipped
//
// that counts tests and subtests. Whether the run has passed is go test's exit
// code to say; this program fails only if it cannot read or write.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := summarize(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(1)
	}
}
