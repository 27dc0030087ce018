// Package core holds the words, the rules and the storage contract of rota: a
// leasing engine for jobs that must run in order within a group.
//
// A queue is a named, independent set of groups. A group is a FIFO lane: its
// jobs start in publish order, one at a time. A job without a group is alone in
// a lane of its own. A claim takes the group whose turn it is, and its oldest
// unsettled job (the head), under a lease that ends at a time of the store's
// clock. Settling ends the lease. Among the groups that are due, the one that
// has waited longest is served first, so that no group starves another.
//
// Three kinds of readers use this package.
//
//   - Producers make jobs with [Publish] or [Producer.Publish], and wait for
//     results with [Wait].
//   - People who look and steer use [Inspector], [Administrator] and [Follow].
//   - Backend authors implement [Backend] and prove it with the suite in
//     package backendtest. The doc comments of the interfaces and of the types
//     they name are the contract.
//
// Workers live in package worker; stores in backends/.
//
// # Time
//
// Leases, delays and schedules are compared with the store's clock only. A
// [NewJob.Delay] is added to it by the store. Workers measure how long a lease
// lasts on their own monotonic clock, from before the claim was sent, and never
// compare a store time with their wall clock.
//
// # Promises
//
// Every backend keeps the promises P1 (order) to P12 (dedup), which
// docs/promises.md states in full and the conformance suite tests by name.
package core
