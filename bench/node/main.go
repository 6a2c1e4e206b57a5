// Command node measures, on a real node of its own, how long after the due time of a CronTab the program in its container
// runs, in turns with a CronJob on the same node, and with a floor that is given in the same run: containerd's own client,
// `ctr run`, started at that time. It also measures how long the node takes to start, and its memory.
//
// CronJobs are due at full minutes only, so each round takes a minute for each size. It needs root, and `make node`.
//
//	make bench-node
//	make bench-node ARGS='--sizes 1 --rounds 5 --json results.json'
package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/command"
)

// options say what is measured.
type options struct {
	// Sizes are the numbers of containers that are due at the same second, each measured Rounds times.
	Sizes  []int `json:"sizes"`
	Rounds int   `json:"rounds"`
	// Repeats is how often a round measures those that need not wait for a full minute.
	Repeats int `json:"repeats"`
	// CronJobs take part.
	CronJobs bool `json:"cronJobs"`
	// Starts is how often a node is started.
	Starts int `json:"starts"`
	// Pods is how many there are when the memory of the node is measured once more, each time after Idle.
	Pods int           `json:"pods"`
	Idle time.Duration `json:"idleNanoseconds"`
	// Patience bounds every wait.
	Patience time.Duration `json:"patienceNanoseconds"`

	// Binary is the program that is measured.
	Binary string `json:"binary,omitempty"`

	command.Output `json:"-"`
	// rest is how long the node has nothing to do before anything is due, at least.
	rest time.Duration
}

// maxContainers is how many can be due at once: a node has 110 Pods.
const maxContainers = 100

func defaults() options {
	return options{Sizes: []int{1, 10}, Rounds: 15, Repeats: 2, CronJobs: true, Starts: 5, Pods: 10, Idle: 30 * time.Second,
		Patience: 3 * time.Minute, rest: 8 * time.Second}
}

// quick is for finding out whether the benchmark still works. Its numbers mean nothing. CronJobs are left out: they are
// due at full minutes only.
func quick() options {
	return options{Sizes: []int{2}, Rounds: 1, Repeats: 1, Starts: 1, Pods: 1, Idle: time.Second, Patience: 3 * time.Minute, rest: 3 * time.Second}
}

var benchmark = command.Benchmark[options, *results]{Parse: parse, Measure: measureAll}

func main() { benchmark.Main() }

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("node", flag.ContinueOnError)
	fs.Func("sizes", "numbers of containers due at the same second, with commas between (1,10); 0 leaves these out", command.Sizes(&o.Sizes, "containers", maxContainers))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "rounds for each size, a minute each")
	fs.IntVar(&o.Repeats, "repeats", o.Repeats, "how often a round measures CronTab and ctr run")
	fs.BoolVar(&o.CronJobs, "cronjobs", o.CronJobs, "measure CronJob, too")
	fs.IntVar(&o.Starts, "starts", o.Starts, "how often to start a node")
	fs.IntVar(&o.Pods, "pods", o.Pods, "Pods for the memory of the node")
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long to leave the node alone before its memory is measured")
	fs.DurationVar(&o.Patience, "patience", o.Patience, "how long to wait for anything at most")
	fs.StringVar(&o.Binary, "keelson", o.Binary, "the `program` to measure; empty is bin/keelson")
	o.AddFlags(fs)
	err := command.Parse(fs, args, &o, quick(), func(o *options) error {
		if o.Rounds < 1 || o.Repeats < 1 || o.Starts < 1 || o.Pods < 1 || o.Pods > maxContainers {
			return fmt.Errorf("there must be a round, a repeat, a start and a Pod at least, and %d Pods at most", maxContainers)
		}
		return nil
	})
	return o, err
}
