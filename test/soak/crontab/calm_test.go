//go:build soak

package crontab

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	// longestLag is how long a calm is put off because runs are late. calmFor is how long it is.
	longestLag = 30 * time.Second
	calmFor    = 9 * time.Second
)

// calm lets a manager work in peace for a while, when it has made up for what was missed: until then, runs may be late.
func (w *world) calm(t *testing.T, m *manager) {
	t.Helper()
	m.awaitReady(t)
	for began := time.Now(); time.Since(began) < longestLag && w.record.lags(); {
		time.Sleep(250 * time.Millisecond) //nolint:forbidigo // how it goes for a second is looked at four times
	}
	time.Sleep(settle) //nolint:forbidigo // it is what settles
	w.calms = append(w.calms, Span{From: time.Now(), To: time.Now().Add(calmFor)})
	time.Sleep(calmFor) //nolint:forbidigo // that nothing happens is the point
}

// unrests says how much of the calms was none, and why.
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
	return fmt.Sprintf("of %d tenths of a second of calm, runs were late in %d, and the manager or the API away in %d; "+
		"%d failed creates are excuses for all", all, late, out, nameless)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
