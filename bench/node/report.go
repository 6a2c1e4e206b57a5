package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// What is to be reached.
const (
	jobLimit     = 10.0   // milliseconds until the Job, of one that is due
	aboveLimit   = 1000.0 // milliseconds above ctr run until the container of one that is due runs
	cronJobLimit = 1.0    // times CronJob
	startLimit   = 5.0    // seconds
	memoryLimit  = 200.0  // megabytes of a node without Pods
	podLimit     = 20.0   // megabytes of what a Pod has besides its containers
)

// Report fills in the targets and writes everything for people, as markdown. It returns how many targets were missed.
func (r *results) Report(text *strings.Builder) (missed int) {
	r.Targets = slices.Concat(r.burstTargets(), r.nodeTargets())
	r.writeHead(text)
	missed = measure.WriteTargets(text, r.Targets)
	for _, n := range r.Options.Sizes {
		r.writeSize(text, n)
	}
	r.writeNode(text)
	return missed
}

func (r *results) writeHead(w *strings.Builder) {
	r.WriteTitle(w, "bench-node")
	fmt.Fprintf(w, "- Machine: %s; load %.1f before the first start, %.1f at the end\n", r.Machine, r.Load[0], r.Load[1])
	fmt.Fprintf(w, "- keelson %s, Kubernetes %s, containerd %s, %s, etcd without fsync\n",
		r.Versions.Keelson, r.Versions.Kubernetes, r.Versions.Containerd, r.Versions.Runtime)
	fmt.Fprintf(w, "- Times are from the second at which all were due until the program in the container runs, by the clock that it\n"+
		"  sees. `ctr run` is started at that second, without kubelet, a sandbox or a network. %d rounds in turns\n\n", r.Options.Rounds)
}

// of returns the bursts of one contestant and size.
func (r *results) of(contestant string, n int) []*burst {
	return measure.Only(r.Bursts, func(b *burst) bool { return b.Contestant == contestant && b.Due == n })
}

// running sums up all containers of one contestant and size.
func (r *results) running(contestant string, n int) measure.Distribution {
	var lags []time.Duration
	for _, one := range r.of(contestant, n) {
		lags = append(lags, one.Lags...)
	}
	return measure.Distribute(lags)
}

// ratios returns for each round how many times as long half of the containers of one contestant took as of another.
func (r *results) ratios(one, other string, n int) measure.Spread {
	var ratios []float64
	for round := range r.Options.Rounds {
		half := func(contestant string) float64 {
			ofRound := measure.Only(r.of(contestant, n), func(b *burst) bool { return b.Round == round })
			return measure.MedianOf(ofRound, func(b *burst) time.Duration { return b.Running.P50 }).Seconds()
		}
		if a, b := half(one), half(other); a > 0 && b > 0 {
			ratios = append(ratios, a/b)
		}
	}
	return measure.NewSpread(ratios)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// burstTargets compares bursts with what is to be reached, as far as there were any.
func (r *results) burstTargets() []measure.Target {
	var targets []measure.Target
	if ours := r.of(keelson, 1); len(ours) > 0 {
		job := measure.MedianOf(ours, func(b *burst) time.Duration { return b.Job.P50 })
		runs, least := r.running(keelson, 1).P50, r.running(floor, 1).P50
		targets = append(targets, measure.Target{
			Name: "1 due: Job of a CronTab", Limit: jobLimit, Unit: " ms", Value: milliseconds(job),
		}, measure.Target{
			Name: "1 due: its container runs, above ctr run", Limit: aboveLimit, Unit: " ms", Value: milliseconds(runs - least),
			Note: fmt.Sprintf("p50 %s, and ctr run %s", measure.Milliseconds(runs), measure.Milliseconds(least)),
		})
	}
	for _, n := range r.Options.Sizes {
		ratios := r.ratios(keelson, cronJob, n)
		if ratios.Median == 0 {
			continue
		}
		targets = append(targets, measure.Target{
			Name: fmt.Sprintf("%d due: container of a CronTab runs, in times of CronJob", n), Limit: cronJobLimit, Below: true, Unit: "×",
			Value: ratios.Median, Note: fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max),
		})
	}
	return targets
}

func (r *results) nodeTargets() []measure.Target {
	start := r.starts()
	return []measure.Target{
		{
			Name: "start of the node, until it is ready", Limit: startLimit, Unit: " s", Value: start.Median,
			Note: fmt.Sprintf("from %.2f to %.2f", start.Min, start.Max),
		},
		{Name: "memory of the node without Pods", Limit: memoryLimit, Below: true, Unit: " MB", Value: float64(r.Empty.pss(always)) / 1e6, Note: "PSS"},
		{
			Name: "memory of a Pod besides its containers", Limit: podLimit, Below: true, Unit: " MB",
			Value: float64(r.Full.pss(perPod)) / 1e6 / float64(r.Options.Pods), Note: "PSS",
		},
	}
}

// starts sums up how long nodes took to start, in seconds.
func (r *results) starts() measure.Spread {
	var seconds []float64
	for _, took := range r.Starts {
		seconds = append(seconds, took.Seconds())
	}
	return measure.NewSpread(seconds)
}

func (r *results) writeSize(w *strings.Builder, n int) {
	fmt.Fprintf(w, "\n## %d due at the same second\n\n", n)
	lags := measure.NewTable("the container runs after", "containers", "first", "p50", "p90", "p99", "last", "× ctr run", "× CronJob")
	stages := measure.NewTable("half of them after", "Job", "Pod", "Pod has its node", "container runs")
	for _, contestant := range everybody {
		of := r.of(contestant, n)
		if len(of) == 0 {
			continue
		}
		d := r.running(contestant, n)
		lags.Add(contestant, fmt.Sprint(d.Count), measure.Milliseconds(d.Min), measure.Milliseconds(d.P50), measure.Milliseconds(d.P90),
			measure.Milliseconds(d.P99), measure.Milliseconds(d.Max), ratio(r.ratios(contestant, floor, n)), ratio(r.ratios(contestant, cronJob, n)))
		if of[0].Job == nil {
			continue
		}
		half := func(stage func(*burst) *measure.Distribution) string {
			return measure.Milliseconds(measure.MedianOf(of, func(b *burst) time.Duration { return stage(b).P50 }))
		}
		stages.Add(contestant, half(func(b *burst) *measure.Distribution { return b.Job }), half(func(b *burst) *measure.Distribution { return b.Pod }),
			half(func(b *burst) *measure.Distribution { return b.Bound }), half(func(b *burst) *measure.Distribution { return &b.Running }))
	}
	lags.Write(w)
	w.WriteByte('\n')
	stages.Write(w)
}

// ratio formats the median of ratios; nothing if there are none.
func ratio(of measure.Spread) string {
	if of.Median == 0 {
		return ""
	}
	return measure.Ratio(of.Median)
}

func (r *results) writeNode(w *strings.Builder) {
	n := r.Options.Pods
	fmt.Fprintf(w, "\n## The node\n\nMemory (PSS) after %s without work:\n\n", r.Options.Idle)
	table := measure.NewTable("part", "without Pods", fmt.Sprintf("with %d", n), "a Pod")
	row := func(name string, of []string) {
		empty, full := r.Empty.pss(of), r.Full.pss(of)
		table.Add(name, measure.Megabytes(empty), measure.Megabytes(full), measure.Megabytes((full-empty)/int64(n)))
	}
	for _, part := range parts {
		row(part, []string{part})
	}
	row("all", parts)
	table.Write(w)
}
