package rotapostgres

import (
	"context"
	"math/rand/v2"
	"time"
)

// pause waits a little before the next try; it tells false when ctx or the backend
// ended meanwhile.
func (b *Backend) pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(rand.N(time.Millisecond << min(try, 7)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-b.base.Done():
		return false
	}
}
