package rotawatermill_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	rotawatermill "github.com/rota-queue/rota/adapters/watermill"
	"github.com/rota-queue/rota/core"
)

// lockedBuffer is a buffer that many goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// deadStore answers no claim.
type deadStore struct{ core.Backend }

func (deadStore) Claim(context.Context, core.ClaimRequest) (core.ClaimResult, error) {
	return core.ClaimResult{}, errors.New("store is down")
}

// TestTroubleIsLogged: what the worker has to say reaches the Watermill logger,
// with the topic and the consumer group.
func TestTroubleIsLogged(t *testing.T) {
	var out lockedBuffer
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&out, nil)))
	sub := newSubscriber(t, deadStore{newMemory(t)}, rotawatermill.SubscriberConfig{ConsumerGroup: "c", Logger: logger})
	subscribe(t, sub, "t")
	eventually(t, "a line about the claim", func() bool { return strings.Contains(out.String(), "store is down") })
	for _, want := range []string{"topic=t", "consumer_group=c", "queue=t@c", "claim fails"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}
