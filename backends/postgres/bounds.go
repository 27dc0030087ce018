package rotapostgres

import (
	"sync"
	"time"
)

// Positions in the bounds that rota.claim takes and gives; see sql/bounds.sql.
const (
	boundsLength = 41
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
	size   int           // of a job, in bytes, as claims have met them lately
	stuck  int           // how many claims in a row got nothing, though something is due: others had locked it
}

// answerSize is how many bytes of jobs a claim asks for, or else for one job: as large as
// jobs were lately. The first claim that meets larger ones can get more.
const answerSize = 8 << 20

// most is how many groups a claim may ask for when it wants n.
func (b *bounds) most(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(1, min(n, answerSize/max(1, b.size)))
}

// met notes how large n jobs were.
func (b *bounds) met(n, size int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size = max(size/n, b.size/2)
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

// give keeps what a claim found, and counts those in a row that were in vain.
func (b *bounds) give(values []int64, inVain bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck++
	if !inVain {
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
