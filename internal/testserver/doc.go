// Package testserver starts private, real servers for tests and breaks them
// on purpose.
//
// Everything it starts listens on a free loopback port, keeps its files in a
// temporary folder, is stopped by t.Cleanup, and dies with the test process
// even when that is killed. A server that is not installed fails the test with
// the way to install it; nothing is ever skipped.
//
// A package that uses [SharedRedis] or [Child] must hand its TestMain over:
//
//	func TestMain(m *testing.M) {
//		testserver.Main(m, func() error { return goleak.Find() })
//	}
//
// A single test that checks for leaked goroutines does so in a cleanup that is
// registered before its servers, and ignores the owner of a shared server:
//
//	t.Cleanup(func() {
//		goleak.VerifyNone(t, goleak.IgnoreAnyFunction(testserver.OwnerFunction))
//	})
package testserver
