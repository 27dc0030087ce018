// Package backendtest is the conformance suite of rota: what every backend has
// to pass, and enough evidence that it keeps the promises P1 to P12.
//
// A backend author writes one test file:
//
//	func harness() backendtest.Harness {
//		return backendtest.Harness{Open: func(t testing.TB) core.Backend {
//			b, err := mystore.Open(t.Context(), address)
//			if err != nil {
//				t.Fatal(err)
//			}
//			return b
//		}}
//	}
//
//	func TestConformance(t *testing.T) { backendtest.Run(t, harness()) }
//	func TestStorms(t *testing.T)      { backendtest.RunStorms(t, harness()) }
//	func TestModel(t *testing.T)       { backendtest.RunModel(t, harness(), memoryBackend) }
//
// [Run] checks each rule of docs/state-machine.md by itself; its subtests carry
// the name of the promise they are about, such as P5_RecoveryInClaim/PoisonJob.
// [RunModel] plays random operations on a reference backend and on the backend
// under test and compares all that can be seen. [RunStorms] lets many publishers
// and workers loose on the store and checks an exact ledger of what was
// acknowledged with a [Checker], which other fault tests may use as well.
//
// All three work on a store that others use at the same time: each test has
// queues, topics and record spaces of its own and removes them when it is done.
// They use the store's real clock; where something has to run out they use
// short leases and delays and wait until the store's clock says that it has.
package backendtest
