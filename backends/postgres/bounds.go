package rotapostgres

import (
	"sync"
	"time"
)

// Positions in the bounds that rota.claim takes and gives; see sql/bounds.sql.
const (
	boundsLength = 40
	boundsFirst  = 3  // of the lower bounds themselves
	boundsEnd    = 22 // behind the last of them
)

// Bounds are forgotten now and then, so that whatever might have gone wrong with
// them (a clock that was set back, a store that lost its last writes) can hide a
// group for no longer than that; and never so often that finding them again takes
// more than a hundredth of the time.
const (
	boundsLast   = 10 * time.Second
	boundsFactor = 100
)

// boundsMap has the lower bounds of the scans of each queue.
type boundsMap struct{ queues sync.Map }

func (m *boundsMap) of(queue string) *bounds {
	if b, ok := m.queues.Load(queue); ok {
		return b.(*bounds)
	}
	b, _ := m.queues.LoadOrStore(queue, &bounds{})
	return b.(*bounds)
}

type bounds struct {
	mu     sync.Mutex
	values []int64
	born   time.Time     // when they were last looked for from the start
	last   time.Duration // how long that took
	whole  time.Time     // set while such a claim runs
	stuck  int           // how many claims in a row left something that is due, because others had locked it
}

// take gives the bounds for a claim; nil for none.
func (b *bounds) take() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.values == nil {
		b.born = time.Now()
		return nil
	}
	if time.Since(b.born) > max(boundsLast, boundsFactor*b.last) {
		b.born = time.Now()
		b.whole = b.born
		b.values = append([]int64(nil), b.values...)
		clear(b.values[boundsFirst:boundsEnd])
	}
	return b.values
}

// give keeps what a claim found. It returns how many claims in a row, up to this one,
// left something that is due.
func (b *bounds) give(values []int64, left bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck++
	if !left {
		b.stuck = 0
	}
	if len(values) != boundsLength {
		return b.stuck
	}
	if !b.whole.IsZero() {
		b.last = time.Since(b.whole)
		b.whole = time.Time{}
	}
	// Claims overlap: the one with the later mark knows more.
	if b.values == nil || values[0] >= b.values[0] {
		b.values = values
	}
	return b.stuck
}
