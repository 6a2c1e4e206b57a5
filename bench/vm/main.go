// Command vm measures how long VirtualMachines of the driver qemu take from their creation until their guests have
// answered, on a control plane of its own, in turns with a floor that is given in the same run: a shell script that
// starts the same QEMUs with the same arguments. It also measures what machines cost that run and have nothing to do,
// and how soon a manager that was killed is back in charge of them.
//
//	make bench-vm
//	make bench-vm ARGS='--sizes 1,10 --rounds 3 --json results.json'
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/command"
)

// options say what is measured.
type options struct {
	// Sizes are the numbers of machines that are created at once. Those below many are measured Rounds times, the
	// others RoundsMany times.
	Sizes      []int `json:"sizes"`
	Rounds     int   `json:"rounds"`
	RoundsMany int   `json:"roundsMany"`
	// Steady is how many machines there are when the cost of those is measured that have nothing to do, for Idle; 0
	// leaves that out.
	Steady int           `json:"steady"`
	Idle   time.Duration `json:"idleNanoseconds"`
	// Restarts is how often the manager of the steady machines is killed and started again.
	Restarts int `json:"restarts"`
	// Patience bounds every wait for machines.
	Patience time.Duration `json:"patienceNanoseconds"`

	// Binary is the program that is measured, Guest the folder of what machines boot.
	Binary string `json:"binary,omitempty"`
	Guest  string `json:"guest,omitempty"`

	command.Output `json:"-"`
	// quiet is how long nothing must be written for machines to count as steady. The use of resources is looked at
	// every 20 s.
	quiet time.Duration
}

const (
	// many is from how many machines on there are fewer rounds.
	many = 10
	// maxMachines is how many there can be: each gets an address.
	maxMachines = 250
	// memory is that of a guest, in MiB.
	memory = 128
)

func defaults() options {
	return options{Sizes: []int{1, 10, 50}, Rounds: 7, RoundsMany: 2, Steady: 50, Idle: 130 * time.Second, Restarts: 3,
		Patience: 5 * time.Minute, quiet: 45 * time.Second}
}

// quick is for finding out whether the benchmark still works. Its numbers mean nothing.
func quick() options {
	return options{Sizes: []int{1}, Rounds: 1, RoundsMany: 1, Steady: 2, Idle: time.Second, Restarts: 1,
		Patience: 3 * time.Minute, quiet: 3 * time.Second}
}

var benchmark = command.Benchmark[options, *results]{Parse: parse, Measure: measureAll}

func main() { benchmark.Main() }

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("vm", flag.ContinueOnError)
	fs.Func("sizes", "numbers of machines created at once, with commas between (1,10,50); 0 leaves these bursts out", command.Sizes(&o.Sizes, "machines", maxMachines))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "bursts of each contestant and size")
	fs.IntVar(&o.RoundsMany, "rounds-many", o.RoundsMany, fmt.Sprintf("the same for sizes of %d and more", many))
	fs.IntVar(&o.Steady, "steady", o.Steady, "machines for writes, memory and restarts of the manager; 0 leaves these out")
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long to watch machines that have nothing to do; Go collects its garbage every 2 minutes")
	fs.IntVar(&o.Restarts, "restarts", o.Restarts, "how often the manager of these machines is killed and started again")
	fs.DurationVar(&o.Patience, "patience", o.Patience, "how long to wait for machines at most")
	fs.StringVar(&o.Binary, "keelson", o.Binary, "the `program` to measure; empty is bin/keelson")
	fs.StringVar(&o.Guest, "guest", o.Guest, "the `folder` of the guest; empty is bin/guest")
	o.AddFlags(fs)
	err := command.Parse(fs, args, &o, quick(), func(o *options) error {
		if o.Rounds < 1 || o.RoundsMany < 1 || o.Restarts < 1 || o.Steady < 0 || o.Steady > maxMachines {
			return fmt.Errorf("there must be a round and a restart at least, and %d machines at most", maxMachines)
		}
		return nil
	})
	return o, err
}

// rounds returns how often a size is measured.
func (o options) rounds(size int) int {
	if size >= many {
		return o.RoundsMany
	}
	return o.Rounds
}
