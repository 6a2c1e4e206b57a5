package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// What is to be reached, with the sizes that it is about.
const (
	aloneSize      = 1
	aloneLimit     = 150.0 // milliseconds above bare QEMU until the guest is ready
	crowdSize      = 50
	crowdLimit     = 1.1    // times bare QEMU until the last guest is ready
	userSpaceLimit = 2000.0 // milliseconds from the start of QEMU
	inChargeLimit  = 1000.0 // milliseconds from the start of the manager
	writesLimit    = 6.0    // a machine until it is steady
	memoryLimit    = 100.0  // kilobytes of the manager a machine
)

// Report fills in the targets and writes everything for people, as markdown. It returns how many targets were missed.
func (r *results) Report(text *strings.Builder) (missed int) {
	r.Targets = slices.Concat(r.burstTargets(), r.steadyTargets())
	r.writeHead(text)
	missed = measure.WriteTargets(text, r.Targets)
	for _, n := range r.Options.Sizes {
		r.writeSize(text, n)
	}
	r.writeSteady(text)
	return missed
}

func (r *results) writeHead(w *strings.Builder) {
	processors := "processors by KVM"
	if r.Emulated {
		processors = "processors emulated"
	}
	r.WriteTitle(w, "bench-vm")
	fmt.Fprintf(w, "- Host: %s; load %.1f at the first burst, %.1f at the end\n", r.Machine, r.Load[0], r.Load[1])
	fmt.Fprintf(w, "- keelson %s, Kubernetes %s, QEMU %s, etcd without fsync\n", r.Versions.Keelson, r.Versions.Kubernetes, r.Versions.QEMU)
	fmt.Fprintf(w, "- Machines have the default guest, one processor and %d MiB; %s\n", memory, processors)
	fmt.Fprintf(w, "- Bare QEMUs are started by a shell script with the same arguments. Medians of %d rounds in turns, of %d from %d machines on\n\n",
		r.Options.Rounds, r.Options.RoundsMany, many)
}

// of returns the bursts of one contestant and size.
func (r *results) of(contestant string, n int) []*burst {
	return measure.Only(r.Bursts, func(b *burst) bool { return b.Contestant == contestant && b.Machines == n })
}

func last(b *burst) time.Duration { return b.Ready.Max }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// burstTargets compares bursts with what is to be reached, as far as there were bursts of the sizes in question.
func (r *results) burstTargets() []measure.Target {
	var targets []measure.Target
	if ours, floor := r.of(keelson, aloneSize), r.of(bare, aloneSize); len(ours) > 0 && len(floor) > 0 {
		took, least := measure.MedianOf(ours, last), measure.MedianOf(floor, last)
		targets = append(targets, measure.Target{
			Name: "1 machine: ready, above bare QEMU", Limit: aloneLimit, Unit: " ms", Value: milliseconds(took - least),
			Note: fmt.Sprintf("%s, and bare %s", measure.Milliseconds(took), measure.Milliseconds(least)),
		}, measure.Target{
			Name: "1 machine: user space of the guest", Limit: userSpaceLimit, Unit: " ms",
			Value: milliseconds(measure.MedianOf(floor, func(b *burst) time.Duration { return b.UserSpace.Max })),
			Note:  "from the start of bare QEMU until the guest's first process has written",
		})
	}
	if ours, floor := r.of(keelson, crowdSize), r.of(bare, crowdSize); len(ours) > 0 && len(floor) > 0 {
		took, least := measure.MedianOf(ours, last), measure.MedianOf(floor, last)
		targets = append(targets, measure.Target{
			Name: fmt.Sprintf("%d machines: last one ready, in times of bare QEMU", crowdSize), Limit: crowdLimit, Unit: "×",
			Value: took.Seconds() / least.Seconds(),
			Note:  fmt.Sprintf("%s, and bare %s", measure.Seconds(took), measure.Seconds(least)),
		})
	}
	return targets
}

func (r *results) steadyTargets() []measure.Target {
	if r.Steady == nil {
		return nil
	}
	n := r.Options.Steady
	inCharge := measure.MedianOf(r.Steady.Restarts, func(r restart) time.Duration { return r.InCharge })
	return []measure.Target{
		{
			Name: fmt.Sprintf("%d machines: a new manager in charge", n), Limit: inChargeLimit, Unit: " ms", Value: milliseconds(inCharge),
			Note: "from its start until every monitor and guest agent has answered it",
		},
		{
			Name: "writes a machine until steady, events included", Limit: writesLimit, Value: r.Steady.Filling.total() / float64(n),
			Note: r.Steady.Filling.each(n),
		},
		{
			Name: "memory of the manager a machine", Limit: memoryLimit, Below: true, Unit: " kB",
			Value: r.Steady.Full.each(n, r.Steady.Empty) / 1e3, Note: "live heap and stacks",
		},
	}
}

func (r *results) writeSize(w *strings.Builder, n int) {
	fmt.Fprintf(w, "\n## %d at once\n\n", n)
	table := measure.NewTable("contestant", "first ready", "p50", "last", "user space, p50", "gone", "processor, each", "memory, each", "of the guest")
	for _, contestant := range []string{bare, keelson} {
		of := r.of(contestant, n)
		if len(of) == 0 {
			continue
		}
		seconds := func(number func(*burst) time.Duration) string { return measure.Seconds(measure.MedianOf(of, number)) }
		bytes := func(number func(overhead) float64) string {
			return measure.Megabytes(int64(measure.MedianOf(of, func(b *burst) float64 { return number(b.Overhead) })))
		}
		userSpace, gone := "", ""
		if of[0].UserSpace != nil {
			userSpace = seconds(func(b *burst) time.Duration { return b.UserSpace.P50 })
		} else {
			gone = seconds(func(b *burst) time.Duration { return b.Gone })
		}
		table.Add(contestant, seconds(func(b *burst) time.Duration { return b.Ready.Min }), seconds(func(b *burst) time.Duration { return b.Ready.P50 }),
			seconds(last), userSpace, gone, seconds(func(b *burst) time.Duration { return b.Processor / time.Duration(n) }),
			bytes(overhead.sum), bytes(func(o overhead) float64 { return o.Guest }))
	}
	table.Write(w)
}

func (r *results) writeSteady(w *strings.Builder) {
	s := r.Steady
	if s == nil {
		return
	}
	n := r.Options.Steady
	fmt.Fprintf(w, "\n## %d machines that have nothing to do\n\n", n)
	fmt.Fprintf(w, "- All ready after %s, steady after %s, gone %s after the first delete\n", measure.Seconds(s.Ready), measure.Seconds(s.Settled), measure.Seconds(s.Gone))
	hour := float64(time.Hour) / float64(s.Watched)
	fmt.Fprintf(w, "- Writes in %s: %s a machine. In an hour of that: %.2f a machine\n", s.Watched.Round(time.Second), s.Writes.each(n), s.Writes.total()*hour/float64(n))
	fmt.Fprintf(w, "- Processor time meanwhile: %s of the manager, %s of all machines\n", measure.Seconds(s.Processor), measure.Seconds(s.Guests))
	fmt.Fprintf(w, "- Memory of a machine besides its guest's: QEMU %s, its shim %s; of the guest's %d MiB, %s are in use\n",
		measure.Megabytes(int64(s.Overhead.QEMU)), measure.Megabytes(int64(s.Overhead.Shim)), memory, measure.Megabytes(int64(s.Overhead.Guest)))
	for i, one := range s.Restarts {
		same := "the same processes"
		if !one.Same {
			same = "OTHER PROCESSES"
		}
		fmt.Fprintf(w, "- Restart %d of the manager: ready after %s, in charge after %s; %s; writes a machine: %s\n", i+1,
			measure.Milliseconds(one.Started), measure.Milliseconds(one.InCharge), same, one.Writes.each(n))
	}
	table := measure.NewTable("memory of the manager", "RSS", "PSS", "live", "stacks", "goroutines", "peak")
	for _, row := range []struct {
		name string
		of   footprint
	}{{"without machines", s.Empty}, {"with them", s.Full}} {
		table.Add(row.name, measure.Megabytes(row.of.Process.RSS), measure.Megabytes(row.of.Process.PSS), measure.Megabytes(int64(row.of.Live)),
			measure.Megabytes(int64(row.of.Stacks)), fmt.Sprint(row.of.Goroutines), measure.Megabytes(row.of.Process.Peak))
	}
	w.WriteByte('\n')
	table.Write(w)
}
