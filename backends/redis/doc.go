// Package rotaredis is the Redis backend of rota. It runs on Redis 6.2 and later,
// Valkey and Redis Cluster.
//
// Every operation is one Lua script and one round trip. All keys of a queue share
// a hash tag, so a queue lives on one node of a cluster; all times are the
// server's. docs/redis.md describes the keys, what each operation costs, and what
// a Redis may lose.
package rotaredis
