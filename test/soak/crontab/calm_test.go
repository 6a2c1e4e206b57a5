//go:build soak

package crontab

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	// longestLag is the maximum time by which a calm phase is postponed while runs are late.
	// calmFor is its duration.
	longestLag = 30 * time.Second
	calmFor    = 9 * time.Second
)

// calm gives the manager a phase without faults, once it has caught up: until then, runs may be
// late.
func (w *world) calm(t *testing.T, m *manager) {
	t.Helper()
	m.awaitReady(t)
	for began := time.Now(); time.Since(began) < longestLag && w.record.lags(); {
		time.Sleep(250 * time.Millisecond) //nolint:forbidigo // polling interval
	}
	time.Sleep(settle) //nolint:forbidigo // runs settle
	w.calms = append(w.calms, Span{From: time.Now(), To: time.Now().Add(calmFor)})
	time.Sleep(calmFor) //nolint:forbidigo // the absence of faults is the point
}

// unrests summarizes the disturbances of calm phases.
func (w *world) unrests() string {
	var all, late, out, nameless int
	busy := w.record.busy()
	for _, calm := range w.calms {
		for at := calm.From; at.Before(calm.To); at = at.Add(100 * time.Millisecond) {
			now := Span{From: at, To: at}
			all++
			late += count(slices.ContainsFunc(busy, now.touches))
			out += count(slices.ContainsFunc(w.outages, now.touches))
		}
	}
	for _, f := range w.proxy.took() {
		nameless += count(f.write.what == "POST jobs" && f.write.name == "")
	}
	return fmt.Sprintf("in %d tenths of a second of calm, runs were late in %d, and the manager or the API unavailable in %d; "+
		"%d failed creates without a name excuse all", all, late, out, nameless)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
