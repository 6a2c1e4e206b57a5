package measure

import (
	"fmt"
	"strings"
	"time"
)

// Run is when and where a benchmark ran; its results embed that.
type Run struct {
	Began   time.Time `json:"began"`
	Machine Machine   `json:"machine"`
	// Load is that of the machine, before the first thing is measured and at the end: what is measured adds to it.
	Load [2]float64 `json:"load"`
}

// NewRun returns a run on this machine that begins now.
func NewRun() Run { return Run{Began: time.Now(), Machine: ThisMachine()} }

// WriteTitle writes the name of the benchmark, and when it ran.
func (r Run) WriteTitle(text *strings.Builder, name string) {
	fmt.Fprintf(text, "# %s\n\n%s\n\n", name, r.Began.UTC().Format(time.RFC3339))
}

// Only returns the items for which keep is true, in the same order.
func Only[I any](items []I, keep func(I) bool) []I {
	var kept []I
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
