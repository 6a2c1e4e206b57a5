package manager

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// gcPercent is by how many percent the heap may grow before Go collects garbage.
	gcPercent = 40

	// While collections follow each other sooner than burstGap, the heap may grow to burstHeap bytes before the next
	// one. When there was none for burstEnd, gcPercent holds again.
	burstGap  = 500 * time.Millisecond
	burstHeap = 56_000_000
	burstEnd  = 2 * time.Second
)

// collectSooner makes Go collect garbage more often than its default of 100 percent, in this process.
//
// Most of what a manager keeps are its caches, which hardly change: with the default, as much memory again would be
// garbage after every burst. But a small heap that grows by a few megabytes between two collections is collected
// dozens of times in a second of hard work, which then takes a quarter of the processor: there it is given some room,
// for as long as the work lasts. The variable with which Go lets a user decide still wins.
var collectSooner = sync.OnceFunc(func() {
	if _, decided := os.LookupEnv("GOGC"); !decided {
		newPacer(debug.SetGCPercent).watch()
	}
})

// pacer decides how much the heap may grow until the next collection.
type pacer struct {
	set func(percent int) int

	mu      sync.Mutex
	percent int
	last    time.Time
	calm    *time.Timer
}

// newPacer returns a pacer that has called set with what holds when little happens.
func newPacer(set func(percent int) int) *pacer {
	p := &pacer{set: set, percent: gcPercent}
	p.calm = time.AfterFunc(burstEnd, func() { p.use(gcPercent) })
	set(gcPercent)
	return p
}

// watch looks at every collection from now on: Go runs the finalizer of something that nobody refers to once in each.
func (p *pacer) watch() {
	sentinel := new([16]byte)
	var collected func(*[16]byte)
	collected = func(s *[16]byte) {
		p.collected(time.Now(), liveHeap())
		runtime.SetFinalizer(s, collected)
	}
	runtime.SetFinalizer(sentinel, collected)
}

// collected notes that garbage was collected, and that so many bytes of the heap are in use.
func (p *pacer) collected(now time.Time, live uint64) {
	p.mu.Lock()
	gap := now.Sub(p.last)
	p.last = now
	p.mu.Unlock()
	if gap < burstGap {
		p.calm.Reset(burstEnd)
		p.use(burstPercent(live))
	}
}

func (p *pacer) use(percent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.percent != percent {
		p.percent = percent
		p.set(percent)
	}
}

// burstPercent is by how many percent a heap with so many bytes in use may grow during a burst.
func burstPercent(live uint64) int {
	return max(gcPercent, int((burstHeap*100)/max(live, 1))-100)
}

// liveHeap returns how many bytes of the heap were in use after the last collection.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
