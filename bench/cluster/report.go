package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// What is to be reached.
const (
	floorLimit  = 1.2 // times the script
	peerLimit   = 1.5 // times faster than kwokctl
	goneLimit   = 1.0 // seconds, one cluster
	memoryLimit = 450 // MB, one cluster
)

// Report fills in the targets and writes everything for people, as markdown. It returns how many targets were missed.
func (r *results) Report(text *strings.Builder) (missed int) {
	r.WriteTitle(text, "bench-cluster")
	fmt.Fprintf(text, "- Machine: %s; load %.1f before, %.1f after; data on %s, with fsync\n", r.Machine, r.Load[0], r.Load[1], r.FileSystem)
	fmt.Fprintf(text, "- keelson %s; components: %s; one binary, the same for all", r.Versions.Keelson, r.Versions.Components)
	if r.Versions.Kwokctl != "" {
		fmt.Fprintf(text, "; kwokctl %s", r.Versions.Kwokctl)
	}
	fmt.Fprintf(text, "\n- %d rounds of each, in turns; /readyz is asked every %s\n\n", r.Options.Rounds, floor.PollInterval)

	r.Targets = slices.Concat(r.timeTargets(), r.memoryTargets(), r.restartTargets())
	missed = measure.WriteTargets(text, r.Targets)
	for _, n := range r.Options.Sizes {
		r.writeSize(text, n)
	}
	r.writeMemory(text)
	r.writeRestarts(text)
	return missed
}

// of returns the samples of a contestant, one a round.
func (r *results) of(contestant string, n int) []*sample {
	return measure.Only(r.Runs, func(s *sample) bool { return s.Contestant == contestant && s.Clusters == n })
}

func last(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all)
}

// ratios compares two contestants round by round, so that what else the machine did in a round counts for both.
func (r *results) ratios(contestant, other string, n int) measure.Spread {
	var values []float64
	theirs := r.of(other, n)
	for i, s := range r.of(contestant, n) {
		if i < len(theirs) {
			values = append(values, last(s.Ready).Seconds()/last(theirs[i].Ready).Seconds())
		}
	}
	return measure.NewSpread(values)
}

func (r *results) timeTargets() []measure.Target {
	var targets []measure.Target
	for _, n := range r.Options.Sizes {
		ratios := r.ratios(keelson, script, n)
		targets = append(targets, measure.Target{
			Name: fmt.Sprintf("%d created to ready, in times of the script", n), Limit: floorLimit, Value: ratios.Median, Unit: "×",
			Note: fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max),
		})
		if len(r.of(kwokctl, n)) > 0 {
			ratios := r.ratios(kwokctl, keelson, n)
			targets = append(targets, measure.Target{
				Name: fmt.Sprintf("%d: kwokctl, in times of ours", n), Limit: peerLimit, AtLeast: true, Value: ratios.Median, Unit: "×",
				Note: fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max),
			})
		}
	}
	if ours := r.of(keelson, 1); len(ours) > 0 {
		gone := measure.MedianOf(ours, func(s *sample) time.Duration { return last(s.Gone) })
		targets = append(targets, measure.Target{
			Name: "1 deleted until nothing is left", Limit: goneLimit, Below: true, Value: gone.Seconds(), Unit: " s",
		})
	}
	return targets
}

func (r *results) memoryTargets() []measure.Target {
	var targets []measure.Target
	for _, f := range r.Memory {
		if f.Contestant == keelson {
			targets = append(targets, measure.Target{
				Name:  fmt.Sprintf("memory (PSS) a cluster, %d side by side", f.Clusters),
				Limit: memoryLimit, Below: true, Value: float64(f.Most) / 1e6, Unit: " MB",
			})
		}
	}
	return targets
}

func (r *results) restartTargets() []measure.Target {
	var targets []measure.Target
	for _, restart := range r.Restarts {
		targets = append(targets, measure.Target{
			Name:  fmt.Sprintf("manager restarted after %s, %d clusters: seen not ready, or components replaced", restart.Way, restart.Clusters),
			Value: float64(len(restart.NotReady) + restart.Replaced),
			Note:  strings.Join(restart.NotReady, "; "),
		})
	}
	return targets
}

func (r *results) writeSize(w *strings.Builder, n int) {
	fmt.Fprintf(w, "\n## %d created at once\n\n", n)
	table := measure.NewTable("median of rounds", "first ready", "all ready", "min", "max", "of the script", "all deleted")
	for _, contestant := range []string{keelson, script, kwokctl} {
		of := r.of(contestant, n)
		if len(of) == 0 {
			continue
		}
		var all []float64
		for _, s := range of {
			all = append(all, last(s.Ready).Seconds())
		}
		spread, deleted := measure.NewSpread(all), ""
		if len(of[0].Gone) > 0 {
			deleted = measure.Seconds(measure.MedianOf(of, func(s *sample) time.Duration { return last(s.Gone) }))
		}
		table.Add(contestant, measure.Seconds(measure.MedianOf(of, func(s *sample) time.Duration { return slices.Min(s.Ready) })),
			seconds(spread.Median), seconds(spread.Min), seconds(spread.Max),
			measure.Ratio(r.ratios(contestant, script, n).Median), deleted)
	}
	table.Write(w)
	if of := r.of(kwokctl, n); len(of) > 0 {
		fmt.Fprintf(w, "\nThe APIs of kwokctl's clusters were ready after %s.\n",
			measure.Seconds(measure.MedianOf(of, func(s *sample) time.Duration { return last(s.API) })))
	}
}

func seconds(s float64) string { return measure.Seconds(time.Duration(s * float64(time.Second))) }

func (r *results) writeMemory(w *strings.Builder) {
	if len(r.Memory) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## Memory of a cluster after %s\n\nMeans of all that run side by side. The program is one file, which all processes share; "+
		"the control plane that the Clusters are objects of shares it, too.\n\n", r.Options.Idle)
	table := measure.NewTable(slices.Concat([]string{"PSS"}, componentNames, []string{"shims", "all", "RSS"})...)
	for _, f := range r.Memory {
		row := []string{fmt.Sprintf("%s, %d", f.Contestant, f.Clusters)}
		for _, name := range componentNames {
			row = append(row, measure.Megabytes(f.Components[name].PSS))
		}
		total := f.total()
		table.Add(append(row, measure.Megabytes(f.Shims.PSS), measure.Megabytes(total.PSS), measure.Megabytes(total.RSS))...)
	}
	table.Write(w)
}

func (r *results) writeRestarts(w *strings.Builder) {
	if len(r.Restarts) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## A manager that is started again\n\nFrom the start of its process; watched for %s after that.\n\n", r.Options.Watched)
	table := measure.NewTable("the one before ended by", "clusters", "all attached", "all probed", "seen not ready", "components replaced")
	for _, one := range r.Restarts {
		table.Add(one.Way, fmt.Sprint(one.Clusters), measure.Seconds(one.Attached), measure.Seconds(one.Probed),
			fmt.Sprint(len(one.NotReady)), fmt.Sprint(one.Replaced))
	}
	table.Write(w)
}
