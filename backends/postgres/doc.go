// Package rotapostgres is the PostgreSQL backend of rota: a core.Backend whose
// jobs, groups and leases are rows of a schema of their own, in PostgreSQL 13 or
// later.
//
// Open it by URL, or on a pool that the program has already:
//
//	b, err := rotapostgres.Open(ctx, "postgres://user@host/db", rotapostgres.Options{})
//	b, err := rotapostgres.New(ctx, pool, rotapostgres.Options{})
//
// Both install and upgrade the schema unless Options.Migrate says otherwise.
//
// Beside what every backend does, this one publishes and settles in a transaction
// of the caller: see [Backend.PublishTx] and [Backend.SettleTx].
//
// docs/postgres.md tells the tables, what each call costs, what PgBouncer and
// long transactions elsewhere mean, and how to tune the server.
package rotapostgres
