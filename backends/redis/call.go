package rotaredis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rota-queue/rota/core"
)

// call is one run of a script.
type call struct {
	script *script
	keys   []string
	args   []any
	// retry, when not 0, is the index in args of a flag that is "0" at first and
	// set to "1" when the call is made again, so that the script looks for what
	// the first one did.
	retry int
	// write tells that WaitReplicas applies.
	write bool
}

// command is a script command that the client does not repeat by itself: the
// backend does, as it knows what is safe and tells the script that it does.
type command struct{ *redis.Cmd }

// NoRetry is asked by the client.
func (command) NoRetry() bool { return true }

// A call is tried again when it was certainly not done, or when the script can
// be run again; not after a timeout, which was waiting enough.
const maxTries = 4

// run runs a script and gives its answer.
func (b *Backend) run(ctx context.Context, c call) (any, error) {
	return await(ctx, b, func(ctx context.Context) (any, error) { return b.insist(ctx, c) }, nil)
}

// insist tries until there is an answer or no sense in another try.
func (b *Backend) insist(ctx context.Context, c call) (any, error) {
	var reply any
	var err error
	for try := range maxTries {
		if try > 0 {
			if c.retry > 0 {
				c.args[c.retry] = "1"
			}
			if b.pause(ctx, try) != nil {
				break
			}
		}
		reply, err = b.attempt(ctx, c)
		if err == nil || !c.mayRepeat(err) {
			break
		}
	}
	if err != nil {
		return nil, storeError(c.script.op, err)
	}
	return reply, nil
}

// pause backs off before a repetition: some 5, 20, 80 ms.
func (b *Backend) pause(ctx context.Context, try int) error {
	base := 5 * time.Millisecond << (2 * (try - 1))
	timer := time.NewTimer(base + mrand.N(base/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing:
		return core.ErrClosed
	case <-timer.C:
		return nil
	}
}

func (c *call) mayRepeat(err error) bool {
	switch errorWord(err) {
	case "":
	case "LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "READONLY", "NOSCRIPT", "ERR max":
		return true // nothing was done
	default:
		return false
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true // nothing was sent
	}
	if !c.script.again {
		return false
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// attempt runs the script once, by its digest, or by its text when the server
// does not know it.
func (b *Backend) attempt(ctx context.Context, c call) (any, error) {
	reply, err := b.send(ctx, c, "evalsha", c.script.sha)
	if err != nil && errorWord(err) == "NOSCRIPT" {
		return b.send(ctx, c, "eval", c.script.text)
	}
	return reply, err
}

func (c *call) command(ctx context.Context, verb, text string) command {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, verb, text, len(c.keys))
	for _, key := range c.keys {
		args = append(args, key)
	}
	return command{redis.NewCmd(ctx, append(args, c.args...)...)}
}

func (b *Backend) send(ctx context.Context, c call, verb, text string) (any, error) {
	cmd := c.command(ctx, verb, text)
	if c.write && b.opts.WaitReplicas > 0 {
		return b.sendAndWait(ctx, c, cmd)
	}
	if err := b.client.Process(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return cmd.Val(), nil
}

// sendAndWait sends WAIT behind the script on the same connection, as WAIT
// speaks of that connection's writes.
func (b *Backend) sendAndWait(ctx context.Context, c call, cmd command) (any, error) {
	var client redis.UniversalClient = b.client
	if cluster, ok := client.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, c.keys[0])
		if err != nil {
			return nil, err
		}
		client = node
	}
	pipe := client.Pipeline()
	_ = pipe.Process(ctx, cmd) // only queues it
	wait := pipe.Do(ctx, "wait", b.opts.WaitReplicas, b.opts.WaitTimeout.Milliseconds())
	_, err := pipe.Exec(ctx)
	if cmd.Err() != nil && !errors.Is(cmd.Err(), redis.Nil) {
		return nil, cmd.Err()
	}
	if wait.Err() != nil {
		return nil, err
	}
	if got, _ := wait.Int64(); got < int64(b.opts.WaitReplicas) {
		return nil, b.replicaError(got)
	}
	return cmd.Val(), nil
}

// nonce makes a text that no other request has.
func nonce() string { return rand.Text()[:20] }

// replicaError says that a write was not acknowledged by enough replicas.
func (b *Backend) replicaError(got int64) error {
	return fmt.Errorf("%w: the write is in the primary but was acknowledged by %d of %d replicas within %s",
		core.ErrUnavailable, got, b.opts.WaitReplicas, b.opts.WaitTimeout)
}
