// Command vm measures how long VirtualMachines of the driver qemu take from their creation until their guests have
// answered, on a control plane of its own, in turns with a floor in the same run: a shell script that starts the same QEMUs
// with the same arguments. Others start from a template, go on with the memory of another machine, or sleep and wake. It
// also measures the memory of each, and the requests to the API server.
//
//	make bench-vm
//	make bench-vm ARGS='--sizes 1,10 --rounds 3'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	// bare: a shell script starts QEMUs, and a client waits at the sockets of their guest agents.
	bare = "bare QEMU"
	// keelson: `keelson manager` starts them for VirtualMachines.
	keelson = "VirtualMachine"
	// instant: the same, by a manager with virtualMachines.instantStart: "true", whose machines start from a template.
	instant = "from a template"
	// forked: machines that go on with the memory of another one.
	forked = "fork with memory"
	// woken and forkWoken: machines that have slept, from the request to wake.
	woken     = "woken"
	forkWoken = "fork, woken"
)

// sleepers are the contestants that sleep, and then wake as others.
var sleepers = map[string]string{keelson: woken, forked: forkWoken}

// The targets.
const (
	aloneLimit   = 150.0  // milliseconds above bare QEMU until the guest is ready
	instantLimit = 300.0  // milliseconds until a machine from a template is ready
	forksLimit   = 2000.0 // milliseconds until the last of 10 forks is ready
	asleepLimit  = 425.0  // milliseconds until a machine is asleep
	awakeLimit   = 350.0  // milliseconds until it is ready again
	crowdSize    = 50
	eachLimit    = 70.0 // megabytes of each of so many machines that did not boot (PSS)
	crowdLimit   = 1.1  // times bare QEMU until the last guest is ready
)

const (
	writers     = 8
	many        = 10  // with so many machines and more, there are a third of the rounds
	maxMachines = 250 // each gets an address
	memory      = 128 // of a guest, in MiB
)

func main() { harness.Main("vm", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	sizes    *[]int
	guest    string // the folder
	template *template
	origin   string // the namespace of a snapshot with the memory of a machine
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	b.sizes = r.Sizes("sizes", "machines created at once", maxMachines, 1, 10, crowdSize)
	if err := r.Parse(args, 7, "--sizes=1 --rounds=1"); err != nil {
		return err
	}
	guest, err := env.Binary(filepath.Join("guest", "guest.json"))
	if err != nil {
		return err
	}
	b.guest = filepath.Dir(guest)
	if b.Cluster, err = r.StartCluster(ctx, writers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Counted = []string{"virtualmachines", "events", "secrets"}
	b.Uncounted = []string{"POST virtualmachines", "DELETE virtualmachines"}
	version, err := harness.Output(ctx, "qemu-system-x86_64", "--version")
	if err != nil {
		return err
	}
	r.Note("%s; machines have the default guest, one CPU and %d MiB", version, memory)
	r.Note("a shell script starts bare QEMUs with the same arguments; medians of %d rounds in turns, of a third from %d machines on", r.Rounds, many)
	// The state of machines is for one manager at a time.
	if err = b.measureAll(ctx, []string{keelson, bare, forked}, false); err == nil {
		err = b.measureAll(ctx, []string{instant, bare}, true)
	}
	b.report()
	return err
}

func (b *bench) stateDir() string { return filepath.Join(b.Dir, "state") }

// measureAll measures contestants in turns, one size after the other, with a manager. Afterwards, neither it nor a machine runs:
// machines outlive their manager, and must not outlive an interrupted run.
func (b *bench) measureAll(ctx context.Context, contestants []string, instantStart bool) (err error) {
	config := filepath.Join(b.Dir, "config.yaml")
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nvirtualMachines: {guestDir: %q, instantStart: \"%t\"}\n",
		manager.ConfigurationVersion, manager.ConfigurationKind, b.guest, instantStart)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	m, err := b.StartManager(ctx, "virtualmachine", "--state-dir="+b.stateDir(), "--config="+config)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, qemu.StopAll(ctx, manager.MachinesDir(b.stateDir()), qemu.StopOptions{}))
	}()
	return m.Use(ctx, func(ctx context.Context, _ int) error {
		if err := b.burst(ctx, &harness.Sample{Contestant: contestants[0], Size: 1}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		for _, n := range *b.sizes {
			rounds := b.Rounds
			if n >= many {
				rounds = max(1, rounds/3)
			}
			err := b.InTurns(rounds, n, contestants, "ready", func(s *harness.Sample) error {
				if s.Contestant == bare {
					return b.burstOfBare(ctx, s)
				}
				return b.burst(ctx, s)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) report() {
	b.Judge(
		harness.Target{Name: "1 machine: ready, above bare QEMU", Limit: aloneLimit, Contestant: keelson, Above: bare, Size: 1, Figure: "ready", Stat: harness.Last, Unit: harness.MS},
		harness.Target{Name: "1 machine from a template: ready", Limit: instantLimit, Contestant: instant, Size: 1, Figure: "ready", Stat: harness.Last, Unit: harness.MS},
		harness.Target{Name: "1 machine: asleep, its memory on the disk", Limit: asleepLimit, Contestant: woken, Size: 1, Figure: asleep, Stat: harness.Last, Unit: harness.MS},
		harness.Target{Name: "1 machine: awake, its agent has answered", Limit: awakeLimit, Contestant: woken, Size: 1, Figure: "ready", Stat: harness.Last, Unit: harness.MS},
		harness.Target{Name: "10 forks with memory: last ready", Limit: forksLimit, Contestant: forked, Size: 10, Figure: "ready", Stat: harness.Last, Unit: harness.MS},
		harness.Target{Name: "50 machines: last one ready, in times of bare QEMU", Limit: crowdLimit, Contestant: keelson, Over: bare, Size: crowdSize, Figure: "ready", Stat: harness.Last})
	for _, contestant := range []string{instant, forked, forkWoken} {
		b.Judge(harness.Target{Name: "50 machines, " + contestant + ": memory of each", Limit: eachLimit, Contestant: contestant, Size: crowdSize,
			Figure: "each", Stat: harness.Last, Unit: harness.MB, Note: "PSS of QEMU, the guest and the shim"})
	}
	for _, n := range *b.sizes {
		b.Printf("\n## %d at once\n", n)
		b.BurstTable(n, []string{bare, keelson, woken, instant, forked, forkWoken}, append(harness.Distribution("ready", harness.Seconds),
			harness.Column{Header: "× bare", Figure: "ready", Stat: harness.Last, Over: bare},
			harness.Column{Header: "gone", Figure: "gone", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "asleep", Figure: asleep, Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "memory, each", Figure: "each", Stat: harness.Last, Format: harness.Megabytes},
			harness.Column{Header: "× bare", Figure: "each", Stat: harness.Last, Over: bare})...)
	}
}
