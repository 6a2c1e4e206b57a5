package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// startLimit is how many times a start may take what the script takes.
const startLimit = 1.15

// results is everything that was measured.
type results struct {
	measure.Run
	FileSystem string             `json:"fileSystem"`
	Versions   string             `json:"versions"`
	Options    options            `json:"options"`
	Starts     map[string][]start `json:"starts"`     // by contestant, one a round
	Components []component        `json:"components"` // of a control plane with everything
	Targets    []measure.Target   `json:"targets"`
}

// Report fills in the targets and writes everything for people, as markdown. It returns how many targets were missed.
func (r *results) Report(text *strings.Builder) (missed int) {
	r.WriteTitle(text, "bench-controlplane")
	fmt.Fprintf(text, "- Machine: %s; load %.1f before, %.1f after; data on %s, with fsync\n", r.Machine, r.Load[0], r.Load[1], r.FileSystem)
	fmt.Fprintf(text, "- Components: %s; one binary\n", r.Versions)
	fmt.Fprintf(text, "- From nothing to /readyz, asked every %s; %d rounds in turns. The script finds its certificates made.\n\n",
		floor.PollInterval, r.Options.Rounds)

	ratios := r.ratios(keelsonAPI, floorTurns)
	r.Targets = []measure.Target{{
		Name: "start of etcd and API, in times of the script", Limit: startLimit, Value: ratios.Median, Unit: "×",
		Note: fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max),
	}}
	missed = measure.WriteTargets(text, r.Targets)
	text.WriteByte('\n')
	r.writeStarts(text)
	fmt.Fprintf(text, "\nMemory after %s, and share of a processor while nothing happens:\n\n", r.Options.Idle)
	r.writeComponents(text)
	return missed
}

func (r *results) writeStarts(w *strings.Builder) {
	table := measure.NewTable("contestant", "/readyz median", "min", "max", "of the script", "settled median")
	for _, name := range contestants {
		ready := r.spread(name, func(s start) time.Duration { return s.Ready })
		settled := ""
		if d := r.spread(name, func(s start) time.Duration { return s.Settled }); d.Median > 0 {
			settled = seconds(d.Median)
		}
		table.Add(name, seconds(ready.Median), seconds(ready.Min), seconds(ready.Max),
			measure.Ratio(r.ratios(name, floorTurns).Median), settled)
	}
	table.Write(w)
}

func (r *results) writeComponents(w *strings.Builder) {
	table := measure.NewTable("component", "RSS", "PSS", "of these, files", "peak RSS", "shim PSS", "processor")
	var sum component
	for _, c := range r.Components {
		table.Add(c.cells()...)
		sum.Memory.RSS += c.Memory.RSS
		sum.Memory.PSS += c.Memory.PSS
		sum.Memory.File += c.Memory.File
		sum.Memory.Peak += c.Memory.Peak
		sum.Shim.PSS += c.Shim.PSS
		sum.Busy += c.Busy
	}
	sum.Name = "all"
	table.Add(sum.cells()...)
	table.Write(w)
}

func (c component) cells() []string {
	return []string{
		c.Name, measure.Megabytes(c.Memory.RSS), measure.Megabytes(c.Memory.PSS), measure.Megabytes(c.Memory.File),
		measure.Megabytes(c.Memory.Peak), measure.Megabytes(c.Shim.PSS), fmt.Sprintf("%.1f %%", 100*c.Busy),
	}
}

// spread sums up one duration of all starts of a contestant, in seconds.
func (r *results) spread(contestant string, of func(start) time.Duration) measure.Spread {
	var values []float64
	for _, s := range r.Starts[contestant] {
		values = append(values, of(s).Seconds())
	}
	return measure.NewSpread(values)
}

// ratios compares two contestants round by round, so that what else the machine did in a round counts for both.
func (r *results) ratios(contestant, other string) measure.Spread {
	var values []float64
	for i, s := range r.Starts[contestant] {
		values = append(values, s.Ready.Seconds()/r.Starts[other][i].Ready.Seconds())
	}
	return measure.NewSpread(values)
}

func seconds(s float64) string { return measure.Seconds(time.Duration(s * float64(time.Second))) }
