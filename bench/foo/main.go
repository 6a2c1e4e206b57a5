// Command foo measures the Foo controller on a control plane of its own: how fast the Deployments of many new Foos are
// there, how fast a Deployment that somebody deleted is back, how many requests a Foo costs, and how much memory the
// manager needs. Beside each time stands a floor, measured in the same run: what a plain client needs for the same
// writes. Upstream's sample-controller runs beside it as the peer.
//
//	make bench-foo
//	make bench-foo ARGS='--foos 500 --rounds 3 --json results.json'
package main

import (
	"errors"
	"flag"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/command"
)

// options say what is measured.
type options struct {
	// Foos is how many are created in a burst, Rounds how often.
	Foos   int `json:"foos"`
	Rounds int `json:"rounds"`
	// Connections is how many the clients have that create objects.
	Connections int `json:"connections"`
	// Threads is that flag of the manager; 0 leaves its default.
	Threads int `json:"threads,omitempty"`
	// Full adds Kubernetes' own controllers, a scheduler and a simulated node.
	Full bool `json:"full"`
	// PeerFoos is how many Foos sample-controller gets; 0 leaves it out.
	PeerFoos int `json:"peerFoos"`
	// IdleFoos is how many there are when requests, memory and repairs are measured; 0 leaves these out.
	IdleFoos int `json:"idleFoos"`
	// Idle is how long nothing must happen then.
	Idle time.Duration `json:"idleNanoseconds"`
	// Repairs is how many Deployments are deleted.
	Repairs int `json:"repairs"`

	// Binary is the program that is measured.
	Binary string `json:"binary,omitempty"`

	command.Output `json:"-"`
	// short skips what only makes numbers steadier, and quiet is how long the manager must send nothing to count as
	// done. A change of status waits for a second before it is written.
	short bool
	quiet time.Duration
}

func defaults() options {
	return options{Foos: 1000, Rounds: 5, Connections: 16, PeerFoos: 100, IdleFoos: 5000, Idle: time.Minute, Repairs: 200,
		quiet: 2 * time.Second}
}

// quick is for finding out whether the benchmark still works. Its numbers mean nothing.
func quick() options {
	return options{Foos: 50, Rounds: 1, Connections: 16, IdleFoos: 100, Idle: time.Second, Repairs: 10,
		short: true, quiet: 300 * time.Millisecond}
}

var benchmark = command.Benchmark[options, *results]{Parse: parse, Measure: measureAll}

func main() { benchmark.Main() }

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("foo", flag.ContinueOnError)
	fs.IntVar(&o.Foos, "foos", o.Foos, "Foos in a burst")
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "bursts of each contestant")
	fs.IntVar(&o.Connections, "connections", o.Connections, "connections of the clients that create objects")
	fs.IntVar(&o.Threads, "threads", o.Threads, "that flag of the manager; 0 is its default")
	fs.BoolVar(&o.Full, "full", o.Full, "run Kubernetes' own controllers, a scheduler and a simulated node, too")
	fs.IntVar(&o.PeerFoos, "peer-foos", o.PeerFoos, "Foos for sample-controller; 0 leaves it out")
	fs.IntVar(&o.IdleFoos, "idle-foos", o.IdleFoos, "Foos for requests, memory and repair; 0 leaves these out")
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long to watch idle Foos")
	fs.IntVar(&o.Repairs, "repairs", o.Repairs, "Deployments to delete")
	fs.StringVar(&o.Binary, "keelson", o.Binary, "the `program` to measure; empty is bin/keelson")
	o.AddFlags(fs)
	err := command.Parse(fs, args, &o, quick(), func(o *options) error {
		if o.Foos < 1 || o.Rounds < 1 || o.Connections < 1 || o.Repairs < 1 && o.IdleFoos > 0 {
			return errors.New("numbers must be 1 or more where 0 has no meaning")
		}
		return nil
	})
	return o, err
}
