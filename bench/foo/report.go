package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// What is to be reached.
const (
	burstLimit  = 1.5   // times floor B
	repairLimit = 30.0  // milliseconds, the 99th percentile
	writesLimit = 2.0   // a Foo
	idleLimit   = 0.0   // requests
	memoryLimit = 100.0 // megabytes
)

// Report fills in the targets and writes everything for people, as markdown. It returns how many targets were missed.
func (r *results) Report(text *strings.Builder) (missed int) {
	r.Targets = r.targets()
	r.writeHead(text)
	missed = measure.WriteTargets(text, r.Targets)
	r.writeBursts(text)
	r.writePeer(text)
	r.writeIdle(text)
	return missed
}

func (r *results) writeHead(w *strings.Builder) {
	components := "etcd and kube-apiserver alone"
	if r.Options.Full {
		components = "with kube-controller-manager, kube-scheduler and a simulated node"
	}
	r.WriteTitle(w, "bench-foo")
	fmt.Fprintf(w, "- Machine: %s; load %.1f at the first burst, %.1f at the end\n", r.Machine, r.Load[0], r.Load[1])
	fmt.Fprintf(w, "- keelson %s, Kubernetes %s, %s, etcd without fsync\n", r.Versions.Keelson, r.Versions.Kubernetes, components)
	fmt.Fprintf(w, "- Clients with %d connections; %d rounds in turns\n\n", r.Options.Connections, r.Options.Rounds)
}

// targets compares what was measured with what is to be reached.
func (r *results) targets() []measure.Target {
	ratios := measure.NewSpread(r.ratios(keelson, floorBoth))
	targets := []measure.Target{{
		Name:  fmt.Sprintf("%d Foos until the last Deployment, in times of floor B", r.Options.Foos),
		Limit: burstLimit, Value: ratios.Median, Unit: "×",
		Note: fmt.Sprintf("rounds from %.2f to %.2f", ratios.Min, ratios.Max),
	}}
	writes := &requests{Methods: map[string]float64{}, Served: map[string]float64{}}
	foos := 0
	for _, one := range r.Bursts {
		if one.Contestant == keelson {
			writes.add(one.Requests)
			foos += one.Objects
		}
	}
	targets = append(targets, measure.Target{
		Name: "writes for a Foo until it is steady, events included", Limit: writesLimit, Value: writes.writes() / float64(foos),
		Note: writes.describeWrites(foos, r.Options.Full),
	})
	if r.Idle == nil {
		return targets
	}
	n := r.Options.IdleFoos
	targets = append(targets, measure.Target{
		Name:  fmt.Sprintf("a deleted Deployment is back, p99, with %d Foos", n),
		Limit: repairLimit, Below: true, Value: r.Idle.Repair.P99.Seconds() * 1000, Unit: " ms",
		Note: fmt.Sprintf("%d samples; the floor has %s", r.Idle.Repair.Count, measure.Milliseconds(r.Idle.RepairFloor.P99)),
	}, measure.Target{
		Name:  fmt.Sprintf("requests in %s with %d idle Foos", r.Options.Idle, n),
		Limit: idleLimit, Value: r.Idle.Requests.total(),
		Note: "watches that were renewed do not count",
	})
	if memory := r.Idle.Memory; memory != nil {
		targets = append(targets, measure.Target{
			Name:  fmt.Sprintf("resident memory of the manager with %d Foos, at its peak", n),
			Limit: memoryLimit, Below: true, Value: float64(memory.Peak) / 1e6, Unit: " MB",
			Note: fmt.Sprintf("of it the program file %s", measure.Megabytes(memory.File)),
		})
	}
	return targets
}

// ratios returns for each round how many times as long one contestant took as another.
func (r *results) ratios(one, other string) []float64 {
	var ratios []float64
	for _, a := range r.Bursts {
		for _, b := range r.Bursts {
			if a.Round == b.Round && a.Contestant == one && b.Contestant == other {
				ratios = append(ratios, a.Total.Seconds()/b.Total.Seconds())
			}
		}
	}
	return ratios
}

func (r *results) writeBursts(w *strings.Builder) {
	fmt.Fprintf(w, "\n## %d objects as fast as the API takes them\n\n", r.Options.Foos)
	w.WriteString("From the first create sent until an observer has seen the last Deployment; for each Foo from its create sent\n" +
		"until its Deployment is seen. Medians of the rounds; × floor B is the median of the ratios within a round.\n\n")
	r.writeBurstTable(w, r.Bursts, []string{floorDeployments, floorBoth, keelson})
	w.WriteString("\nProcessor time until then, in seconds:\n\n")
	writeProcessors(w, r.Bursts, []string{floorDeployments, floorBoth, keelson})
}

func (r *results) writeBurstTable(w *strings.Builder, bursts []*burst, contestants []string) {
	table := measure.NewTable("", "total", "× floor B", "Foos/s", "first", "p50", "p99", "last", "p50 from the answer")
	for _, contestant := range contestants {
		of := only(bursts, contestant)
		total := measure.MedianOf(of, func(b *burst) time.Duration { return b.Total })
		at := func(which func(measure.Distribution) time.Duration) string {
			return measure.Milliseconds(measure.MedianOf(of, func(b *burst) time.Duration { return which(b.FromSent) }))
		}
		ratio := ""
		if ratios := r.ratios(contestant, floorBoth); len(bursts) == len(r.Bursts) && len(ratios) > 0 {
			ratio = measure.Ratio(measure.Median(ratios))
		}
		table.Add(contestant, measure.Seconds(total), ratio, fmt.Sprintf("%.0f", float64(of[0].Objects)/total.Seconds()),
			at(func(d measure.Distribution) time.Duration { return d.Min }),
			at(func(d measure.Distribution) time.Duration { return d.P50 }),
			at(func(d measure.Distribution) time.Duration { return d.P99 }),
			at(func(d measure.Distribution) time.Duration { return d.Max }),
			measure.Milliseconds(measure.MedianOf(of, func(b *burst) time.Duration { return b.FromAnswered.P50 })))
	}
	table.Write(w)
}

func writeProcessors(w *strings.Builder, bursts []*burst, contestants []string) {
	names := map[string]bool{}
	for _, one := range bursts {
		for name := range one.Processor {
			names[name] = true
		}
	}
	columns := slices.Sorted(maps.Keys(names))
	table := measure.NewTable(append([]string{"", "all"}, columns...)...)
	for _, contestant := range contestants {
		all := measure.MedianOf(only(bursts, contestant), (*burst).processorTime)
		row := []string{contestant, fmt.Sprintf("%.2f", all.Seconds())}
		for _, name := range columns {
			of := measure.Only(only(bursts, contestant), func(b *burst) bool { _, found := b.Processor[name]; return found })
			cell := ""
			if len(of) > 0 {
				cell = fmt.Sprintf("%.2f", measure.MedianOf(of, func(b *burst) time.Duration { return b.Processor[name] }).Seconds())
			}
			row = append(row, cell)
		}
		table.Add(row...)
	}
	table.Write(w)
}

func (r *results) writePeer(w *strings.Builder) {
	if len(r.PeerBursts) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## The peer: sample-controller %s as shipped, %d Foos\n\n", r.Versions.Peer, r.Options.PeerFoos)
	w.WriteString("Its client is throttled to 5 requests a second after the first 10, and no flag changes that, so it gets fewer Foos\n" +
		"and there is no row without the throttle. It runs once, with our definition of Foo; keelson beside it has the same number.\n\n")
	r.writeBurstTable(w, r.PeerBursts, []string{keelson, peer})
}

func (r *results) writeIdle(w *strings.Builder) {
	if r.Idle == nil {
		return
	}
	fmt.Fprintf(w, "\n## %d Foos\n\n", r.Options.IdleFoos)
	fill := r.Idle.Fill
	fmt.Fprintf(w, "- Created in %s, p99 %s; steady after %s; %s\n", measure.Seconds(fill.Total), measure.Milliseconds(fill.FromSent.P99),
		measure.Seconds(fill.Requests.Steady), fill.Requests.describeWrites(fill.Objects, r.Options.Full))
	fmt.Fprintf(w, "- Idle for %s: %s; processor time of the manager %s\n", r.Options.Idle, r.Idle.Requests.describe(), r.Idle.Processor)
	if memory := r.Idle.Memory; memory != nil {
		fmt.Fprintf(w, "- Memory of the manager: RSS %s, of it the program file %s; PSS %s; Go heap in use %s; peak %s\n",
			measure.Megabytes(memory.RSS), measure.Megabytes(memory.File), measure.Megabytes(memory.PSS),
			measure.Megabytes(r.Idle.Heap), measure.Megabytes(memory.Peak))
	}
	w.WriteString("\nA Deployment is deleted, one after the other: from the delete sent until its successor is seen.\n\n")
	table := measure.NewTable("", "samples", "p50", "p90", "p99", "max")
	for _, row := range []struct {
		name string
		d    measure.Distribution
	}{{"keelson", r.Idle.Repair}, {"floor: the client deletes and creates", r.Idle.RepairFloor}} {
		table.Add(row.name, fmt.Sprint(row.d.Count), measure.Milliseconds(row.d.P50), measure.Milliseconds(row.d.P90),
			measure.Milliseconds(row.d.P99), measure.Milliseconds(row.d.Max))
	}
	table.Write(w)
}

// only returns the bursts of one contestant.
func only(bursts []*burst, contestant string) []*burst {
	return measure.Only(bursts, func(b *burst) bool { return b.Contestant == contestant })
}

// add adds other requests to these.
func (r *requests) add(other *requests) {
	for what, n := range other.Methods {
		r.Methods[what] += n
	}
	for what, n := range other.Served {
		r.Served[what] += n
	}
}

// describeWrites says what the writes for a number of Foos were.
func (r *requests) describeWrites(foos int, full bool) string {
	text := fmt.Sprintf("%.2f writes a Foo", r.writes()/float64(foos))
	if full {
		return text // others write to the same resources
	}
	var parts []string
	for _, what := range slices.SortedFunc(maps.Keys(r.Served), cmp.Compare) {
		if !isWatch(what) {
			parts = append(parts, fmt.Sprintf("%s %.2f", what, r.Served[what]/float64(foos)))
		}
	}
	return fmt.Sprintf("%s (%s); without events %.2f", text, strings.Join(parts, ", "), (r.writes()-r.events())/float64(foos))
}

// describe lists requests.
func (r *requests) describe() string {
	watches := 0.0
	for what, n := range r.Served {
		if isWatch(what) {
			watches += n
		}
	}
	text := fmt.Sprintf("%g requests, %g watches renewed", r.total(), watches)
	if r.total() == 0 {
		return text
	}
	var parts []string
	for _, method := range slices.Sorted(maps.Keys(r.Methods)) {
		parts = append(parts, fmt.Sprintf("%s %g", method, r.Methods[method]))
	}
	return text + " (" + strings.Join(parts, ", ") + ")"
}
