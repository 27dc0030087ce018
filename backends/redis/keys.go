package rotaredis

import (
	"strings"

	"github.com/rota-queue/rota/core"
)

// The names of keys. All keys of a queue start with its prefix,
//
//	rota:{family}:queue:
//
// and a short name follows (docs/redis.md lists them). The scripts get the prefix
// as their key: it routes them on a cluster, where all keys with one hash tag,
// the part in braces, are on one node, and they make the other names from it.
// Record spaces have a tag each, `rota:{rec:space}:`, so that they spread.

// escaper keeps the parts of a name apart and the hash tag whole.
var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", ":", "%3A")

// familyKey is the prefix of all queues of a family. No family has an "@", so it
// can stand for the empty one: with an empty tag a cluster hashes the whole key.
func (b *Backend) familyKey(family string) string {
	if family == "" {
		family = "@"
	}
	return b.opts.Prefix + ":{" + escaper.Replace(family) + "}:"
}

// queueKey is the prefix of the keys of a queue or topic.
func (b *Backend) queueKey(name string) string {
	return b.familyKey(core.Family(name)) + escaper.Replace(name) + ":"
}

// spaceKey is the prefix of the keys of a record space.
func (b *Backend) spaceKey(space string) string {
	return b.opts.Prefix + ":{rec:" + escaper.Replace(space) + "}:"
}

// queuesKey is the set of the names of all queues.
func (b *Backend) queuesKey() string { return b.opts.Prefix + ":queues" }

// channel is where the hints of a queue are published.
func (b *Backend) channel(queue string) string { return b.queueKey(queue) + "w" }
