package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/plot"
)

// What is to be reached, with the sizes that it is about.
const (
	floorSize    = 2000
	floorLimit   = 1.15 // times the floor, until the last Job
	firstLimit   = 5.0  // milliseconds until the first Job
	peerLimit    = 3.0  // times as fast as CronJob without a throttle, until the last Job
	shippedSize  = 500  //
	shippedLimit = 50.0 // times as fast as CronJob as shipped, half of the Jobs
	writesLimit  = 2.0  // a run
	requestLimit = 0.0  // while idle
	busyLimit    = 0.1  // percent of a processor while idle
	memoryLimit  = 6.0  // kilobytes a CronTab
)

// Report fills in the targets and writes everything for people, as markdown. It returns how many targets were missed.
func (r *results) Report(text *strings.Builder) (missed int) {
	r.Targets = slices.Concat(r.burstTargets(), r.idleTargets())
	r.writeHead(text)
	missed = measure.WriteTargets(text, r.Targets)
	for _, n := range r.Options.Sizes {
		r.writeSize(text, n)
	}
	r.writeIdle(text)
	return missed
}

func (r *results) writeHead(w *strings.Builder) {
	others := "no controller of Jobs"
	if r.Options.JobController {
		others = "with Kubernetes' controller of Jobs"
	}
	r.WriteTitle(w, "bench-crontab")
	fmt.Fprintf(w, "- Machine: %s; load %.1f at the first burst, %.1f at the end\n", r.Machine, r.Load[0], r.Load[1])
	fmt.Fprintf(w, "- keelson %s, Kubernetes %s, %s, etcd without fsync\n", r.Versions.Keelson, r.Versions.Kubernetes, others)
	fmt.Fprintf(w, "- Lag is from the second at which all were due until an observer has seen the Job. The floor is a client with %d\n"+
		"  connections. Medians of %d rounds in turns\n\n", r.Options.Connections, r.Options.Rounds)
}

// of returns the bursts of one contestant and size.
func (r *results) of(contestant string, n int) []*burst {
	return measure.Only(r.Bursts, func(b *burst) bool { return b.Contestant == contestant && b.Objects == n })
}

func first(b *burst) time.Duration { return b.Lag.Min }
func half(b *burst) time.Duration  { return b.Lag.P50 }
func last(b *burst) time.Duration  { return b.Lag.Max }

// ratios returns for each round how many times as long one contestant took as another.
func (r *results) ratios(one, other string, n int, which func(*burst) time.Duration) measure.Spread {
	var ratios []float64
	for _, a := range r.of(one, n) {
		for _, b := range r.of(other, n) {
			if a.Round == b.Round {
				ratios = append(ratios, which(a).Seconds()/which(b).Seconds())
			}
		}
	}
	return measure.NewSpread(ratios)
}

// burstTargets compares bursts with what is to be reached, as far as there were bursts of the sizes in question.
func (r *results) burstTargets() []measure.Target {
	var targets []measure.Target
	compared := func(name, one, other string, n int, which func(*burst) time.Duration, target measure.Target) {
		spread := r.ratios(one, other, n, which)
		if spread.Median == 0 {
			return
		}
		target.Name, target.Value, target.Unit = fmt.Sprintf("%d due: %s", n, name), spread.Median, "×"
		target.Note = fmt.Sprintf("rounds from %.2f to %.2f", spread.Min, spread.Max)
		targets = append(targets, target)
	}
	compared("last Job, in times of the floor", keelson, floor, floorSize, last, measure.Target{Limit: floorLimit})
	for _, n := range r.Options.Sizes {
		if of := r.of(keelson, n); len(of) > 0 {
			targets = append(targets, measure.Target{
				Name: fmt.Sprintf("%d due: first Job", n), Limit: firstLimit, Unit: " ms",
				Value: float64(measure.MedianOf(of, first)) / float64(time.Millisecond),
				Note:  "the floor: " + measure.Milliseconds(measure.MedianOf(r.of(floor, n), first)),
			})
		}
	}
	for _, peer := range []string{cronJob5, cronJob50} {
		compared("last Job, times as fast as "+peer, peer, keelson, floorSize, last, measure.Target{Limit: peerLimit, AtLeast: true})
	}
	compared("half of the Jobs, times as fast as "+cronJobShipped, cronJobShipped, keelson, shippedSize, half,
		measure.Target{Limit: shippedLimit, AtLeast: true})
	return append(targets, r.writesTarget()...)
}

func (r *results) writesTarget() []measure.Target {
	writes, runs := 0.0, 0
	all := served{}
	for _, one := range r.Bursts {
		if one.Contestant == keelson {
			writes += one.Requests.writes()
			runs += one.Objects
			for what, n := range one.Requests {
				all[what] += n
			}
		}
	}
	if runs == 0 {
		return nil
	}
	return []measure.Target{{
		Name: "writes a run, events included", Limit: writesLimit, Value: writes / float64(runs), Note: all.each(runs),
	}}
}

func (r *results) idleTargets() []measure.Target {
	if r.Idle == nil {
		return nil
	}
	n := r.Options.IdleCronTabs
	targets := []measure.Target{{
		Name:  fmt.Sprintf("%d idle CronTabs: requests in %s", n, r.Options.Idle),
		Limit: requestLimit, Value: r.Idle.Requests.total(), Note: r.Idle.Requests.each(1),
	}, {
		Name:  fmt.Sprintf("%d idle CronTabs: share of a processor", n),
		Limit: busyLimit, Below: true, Unit: " %", Value: 100 * r.Idle.Processor.Seconds() / r.Options.Idle.Seconds(),
	}}
	empty, full := r.Idle.Empty, r.Idle.Full
	if empty.Process != nil && full.Process != nil {
		targets = append(targets, measure.Target{
			Name: "memory a CronTab", Limit: memoryLimit, Below: true, Unit: " kB",
			Value: each(n, float64(full.Process.RSS), float64(empty.Process.RSS)) / 1000,
			Note: fmt.Sprintf("RSS %s without, %s with; live on the heap %.1f kB each",
				measure.Megabytes(empty.Process.RSS), measure.Megabytes(full.Process.RSS), each(n, full.Live, empty.Live)/1000),
		})
	}
	return targets
}

func (r *results) writeSize(w *strings.Builder, n int) {
	fmt.Fprintf(w, "\n## %d due at the same second\n\n", n)
	lags := measure.NewTable("", "first", "p50", "p99", "last", "× floor", "Jobs/s", "steady")
	costs := measure.NewTable("", "controller", "until steady", "all", "RSS", "peak")
	var requests, own strings.Builder
	for _, contestant := range everybody {
		of := r.of(contestant, n)
		if len(of) == 0 {
			continue
		}
		at := func(which func(*burst) time.Duration) string {
			return measure.Milliseconds(measure.MedianOf(of, which))
		}
		lags.Add(contestant, at(first), at(half), at(func(b *burst) time.Duration { return b.Lag.P99 }), at(last),
			measure.Ratio(r.ratios(contestant, floor, n, last).Median),
			fmt.Sprintf("%.0f", float64(n)/measure.MedianOf(of, last).Seconds()),
			measure.Seconds(measure.MedianOf(of, func(b *burst) time.Duration { return b.Steady })))
		costs.Add(contestant,
			measure.Seconds(measure.MedianOf(of, (*burst).controllerTime)),
			measure.Seconds(measure.MedianOf(of, func(b *burst) time.Duration { return b.ProcessorSteady })),
			measure.Seconds(measure.MedianOf(of, (*burst).allTime)),
			megabytes(of, func(m *measure.Memory) int64 { return m.RSS }), megabytes(of, func(m *measure.Memory) int64 { return m.Peak }))
		fmt.Fprintf(&requests, "- %s: %s\n", contestant, of[len(of)-1].Requests.each(n))
		if lag := of[len(of)-1].Own; lag != nil {
			fmt.Fprintf(&own, "\nBy the manager's own histogram of the last round: %d runs; first %s, p50 %s, last %s.\n",
				lag.Count, lag.First, lag.P50, lag.Last)
		}
	}
	lags.Write(w)
	w.WriteString(own.String() + "\nProcessor time of the controller until the last Job and until it was steady, and of all processes until the\n" +
		"last Job; memory of the controller:\n\n")
	costs.Write(w)
	w.WriteString("\nRequests a run, of the last round:\n\n" + requests.String())
}

// megabytes returns the median of some number of bytes, as text.
func megabytes(bursts []*burst, number func(*measure.Memory) int64) string {
	of := measure.Only(bursts, func(b *burst) bool { return b.Memory != nil })
	if len(of) == 0 {
		return ""
	}
	return measure.Megabytes(measure.MedianOf(of, func(b *burst) int64 { return number(b.Memory) }))
}

// controllerTime returns the processor time of what creates the Jobs: the controller, or the client that is the floor.
func (b *burst) controllerTime() time.Duration {
	switch b.Contestant {
	case floor:
		return b.Processor["client"]
	case keelson:
		return b.Processor["keelson manager"]
	default:
		return b.Processor["cronjob-controller"]
	}
}

func (b *burst) allTime() time.Duration {
	var sum time.Duration
	for _, used := range b.Processor {
		sum += used
	}
	return sum
}

func (r *results) writeIdle(w *strings.Builder) {
	if r.Idle == nil {
		return
	}
	n := r.Options.IdleCronTabs
	fmt.Fprintf(w, "\n## %d CronTabs that are due once a day\n\n", n)
	fmt.Fprintf(w, "- Created and steady after %s; requests for each: %s\n", measure.Seconds(r.Idle.Created), r.Idle.Filling.each(n))
	fmt.Fprintf(w, "- Idle for %s: %g requests; processor time of the manager %s\n\n", r.Options.Idle, r.Idle.Requests.total(), r.Idle.Processor)
	table := measure.NewTable("memory of the manager", "RSS", "PSS", "heap in use", "live", "peak")
	for _, row := range []struct {
		name string
		of   footprint
	}{{"without CronTabs", r.Idle.Empty}, {"with them", r.Idle.Full}} {
		memory := measure.Memory{}
		if row.of.Process != nil {
			memory = *row.of.Process
		}
		table.Add(row.name, measure.Megabytes(memory.RSS), measure.Megabytes(memory.PSS), measure.Megabytes(int64(row.of.Heap)),
			measure.Megabytes(int64(row.of.Live)), measure.Megabytes(memory.Peak))
	}
	table.Write(w)
}

// plot draws lag against size.
func (r *results) plot(file string) error {
	chart := plot.Chart{
		Title:  "How late Jobs are when many schedules are due at the same second: CronTab, CronJob, and plain creates",
		XLabel: "schedules due at the same second", YLabel: "lag",
		FormatX: func(v float64) string { return fmt.Sprintf("%g", v) },
		FormatY: func(v float64) string {
			if v < 0.9 {
				return fmt.Sprintf("%g ms", 1000*v)
			}
			return fmt.Sprintf("%g s", v)
		},
		Panels: []plot.Panel{r.panel("half of the Jobs", half), r.panel("the last Job", last)},
	}
	for _, contestant := range everybody {
		if len(chart.Panels[0].Points[contestant]) > 0 {
			chart.Lines = append(chart.Lines, contestant)
		}
	}
	for _, n := range r.Options.Sizes {
		chart.XTicks = append(chart.XTicks, float64(n))
	}
	var text strings.Builder
	if err := chart.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

func (r *results) panel(title string, which func(*burst) time.Duration) plot.Panel {
	panel := plot.Panel{Title: title, Points: map[string][]plot.Point{}}
	for _, contestant := range everybody {
		for _, n := range r.Options.Sizes {
			if of := r.of(contestant, n); len(of) > 0 {
				at := plot.Point{X: float64(n), Y: measure.MedianOf(of, which).Seconds()}
				panel.Points[contestant] = append(panel.Points[contestant], at)
			}
		}
	}
	return panel
}
