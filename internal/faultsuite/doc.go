// Package faultsuite is the fault suite that every backend on a networked store
// has to pass, with real servers and real worker and publisher processes.
// Processes are killed with SIGKILL or frozen, the server is killed, restarted or
// frozen under load, connections are cut before and after chosen commands, and
// clocks are wrong.
//
// A backend runs it from one test file:
//
//	func open(ctx context.Context, url string) (core.Backend, error) {
//		return mystore.Open(ctx, url)
//	}
//
//	func init() { faultsuite.RegisterChildren("mystore", open) }
//
//	func TestFaults(t *testing.T) {
//		faultsuite.Run(t, faultsuite.Store{Name: "mystore", Open: open, ...})
//	}
//
// and the package's TestMain is testserver.Main.
//
// # The ledger
//
// Every process writes what it does and what it was answered as lines to its
// standard output: before a call is sent and after it has returned, with times of
// a clock that all processes of a machine share. A line is written whole or, by a
// process that was killed, not at all, so the lines are a history in which only
// the last call of a killed process is open. [Ledger] judges such a history
// together with what the store shows in the end. It knows no more than a client
// can know: what was acknowledged must have happened, what was refused must not
// have, and what was not answered may have happened once. Package backendtest has a
// Checker for the same promises; that one watches backends within one process and
// knows of every lease, while here the line of a lease may be missing because the
// process was killed before it could write it.
package faultsuite
