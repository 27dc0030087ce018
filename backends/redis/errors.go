package rotaredis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
)

// replyErrors explains the errors a Redis answers with, by their first word.
var replyErrors = map[string]struct {
	kind error
	text string
}{
	"NOAUTH":      {core.ErrMisconfigured, "the server asks for a password and none was given"},
	"WRONGPASS":   {core.ErrMisconfigured, "the user name or password is wrong"},
	"NOPERM":      {core.ErrMisconfigured, "the user lacks a permission (it needs the commands, keys and channels docs/redis.md lists)"},
	"READONLY":    {core.ErrMisconfigured, "the server is a read-only replica, nothing was written"},
	"OOM":         {core.ErrMisconfigured, "the server's memory is full (maxmemory), nothing was written"},
	"MISCONF":     {core.ErrMisconfigured, "the server refuses writes because it can not save to disk, nothing was written"},
	"NOREPLICAS":  {core.ErrUnavailable, "the server has fewer replicas than it wants (min-replicas-to-write), nothing was written"},
	"LOADING":     {core.ErrUnavailable, "the server is loading its data, nothing was done"},
	"BUSY":        {core.ErrUnavailable, "the server is busy with somebody's long script, nothing was done"},
	"MASTERDOWN":  {core.ErrUnavailable, "the replica has lost its primary, nothing was done"},
	"CLUSTERDOWN": {core.ErrUnavailable, "the cluster does not serve the slot, nothing was done"},
	"TRYAGAIN":    {core.ErrUnavailable, "the cluster is moving the slot, nothing was done"},
	"ASK":         {core.ErrUnavailable, "the cluster is moving the slot, nothing was done"},
	"MOVED":       {core.ErrMisconfigured, "the server is part of a cluster and the client is not a cluster client, nothing was done"},
	"CROSSSLOT":   {core.ErrMisconfigured, "the keys of one operation are in different slots of the cluster, nothing was done"},
	"NOSCRIPT":    {core.ErrUnavailable, "the server lost a script while it was loaded, nothing was done"},
	"ERR max":     {core.ErrUnavailable, "the server has too many clients, nothing was done"},
	"ERR DB":      {core.ErrMisconfigured, "the server has no database of that number"},
	"ERR cluster": {core.ErrMisconfigured, "the server is not a node of a cluster, and the URL or client is one of a cluster"},
	"WRONGTYPE":   {core.ErrMisconfigured, "somebody else's data has the name of one of rota's keys"},
}

// errorWord gives the word that replyErrors knows an error by.
func errorWord(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text := reply.Error()
	for prefix, word := range map[string]string{
		"ERR max number of clients": "ERR max", "ERR DB index": "ERR DB",
		"ERR This instance has cluster support disabled": "ERR cluster",
	} {
		if strings.HasPrefix(text, prefix) {
			return word
		}
	}
	// Redis 7 wraps the error of a command within a script, Redis 6.2 writes
	// "ERR Error running script (call to f_..): @user_script:1: OOM command not..".
	if strings.HasPrefix(text, "ERR Error running script") {
		for word := range replyErrors {
			if strings.Contains(text, ": "+word+" ") || strings.Contains(text, "-"+word+" ") {
				return word
			}
		}
	}
	word, _, _ := strings.Cut(text, " ")
	return word
}

// storeError turns an error of the client into one of core's, with both in its
// tree.
func storeError(op string, err error) error {
	if word := errorWord(err); word != "" {
		if known, ok := replyErrors[word]; ok {
			return fmt.Errorf("redis: %s: %w: %s: %w", op, known.kind, known.text, err)
		}
		return fmt.Errorf("redis: %s: the server answered: %w", op, err)
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("redis: %s: %w", op, err)
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("redis: %s: %w: %w", op, core.ErrClosed, err)
	case errors.Is(err, redis.ErrPoolTimeout):
		return fmt.Errorf("redis: %s: %w: all connections of the pool are in use, nothing was done: %w", op, core.ErrUnavailable, err)
	}
	return fmt.Errorf("redis: %s: %w: %w", op, core.ErrUnavailable, err)
}

func notFound(what, name string) error {
	return fmt.Errorf("%s %q: %w", what, name, core.ErrNotFound)
}
