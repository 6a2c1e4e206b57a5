// Command crontab measures how late Jobs are when many schedules are due at the same second, on a control plane of its
// own: those of CronTabs, in turns with those of CronJobs, and with a floor that is given in the same run: a plain client
// that creates the same Jobs. It also measures what many CronTabs cost that have nothing to do.
//
// It draws lag against the number of schedules for docs/internals/crontab.md, too. All of it takes about an hour; runs of a part
// are added up with --add.
//
//	make bench-crontab
//	make bench-crontab ARGS='--sizes 500,2000 --rounds 5 --json results.json'
package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/command"
)

// options say what is measured.
type options struct {
	// Sizes are the numbers of objects that are due at once, each measured Rounds times.
	Sizes  []int `json:"sizes"`
	Rounds int   `json:"rounds"`
	// Connections is how many the client has that creates objects, and that is the floor.
	Connections int `json:"connections"`
	// Threads is that flag of the manager; 0 leaves its default.
	Threads int `json:"threads,omitempty"`
	// PeerMost is the largest size for CronJobs, ShippedMost that for CronJobs as shipped; 0 leaves them out.
	PeerMost    int `json:"peerMost"`
	ShippedMost int `json:"shippedMost"`
	// Only are the contestants that take part; empty is all.
	Only []string `json:"only,omitempty"`
	// JobController also runs Kubernetes' controller of Jobs, which then has the same work with all contestants.
	JobController bool `json:"jobController"`
	// IdleCronTabs is how many there are when the cost of idle ones is measured, for Idle; 0 leaves that out.
	IdleCronTabs int           `json:"idleCronTabs"`
	Idle         time.Duration `json:"idleNanoseconds"`

	// Binary is the program that is measured.
	Binary string `json:"binary,omitempty"`

	add            []string // results of earlier runs
	plotFile       string
	command.Output `json:"-"`
	// warm is how many objects each contestant gets before a burst, and quiet is how long it must send nothing to
	// count as done.
	warm  int
	quiet time.Duration
}

func defaults() options {
	return options{Sizes: []int{100, 500, 2000, 10000}, Rounds: 3, Connections: 16, PeerMost: 10000, ShippedMost: 500,
		IdleCronTabs: 10000, Idle: 2 * time.Minute, plotFile: "docs/internals/crontab-lag.svg", warm: 16, quiet: 2 * time.Second}
}

// quick is for finding out whether the benchmark still works. Its numbers mean nothing. CronJobs are left out: they are
// due at full minutes only.
func quick() options {
	return options{Sizes: []int{50}, Rounds: 1, Connections: 16, IdleCronTabs: 100, Idle: time.Second,
		warm: 4, quiet: 2 * time.Second}
}

var benchmark = command.Benchmark[options, *results]{Parse: parse, Measure: measureAll, Finish: drawPlot}

func main() { benchmark.Main() }

// drawPlot draws the plot, if there is to be one.
func drawPlot(o options, r *results) error {
	if o.plotFile == "" || len(r.Bursts) == 0 {
		return nil
	}
	return r.plot(o.plotFile)
}

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("crontab", flag.ContinueOnError)
	fs.Func("sizes", "numbers of objects due at once, with commas between (100,500,2000,10000); 0 leaves bursts out", command.Sizes(&o.Sizes, "objects", maxObjects))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "bursts of each contestant and size")
	fs.IntVar(&o.Connections, "connections", o.Connections, "connections of the client that creates objects and is the floor")
	fs.IntVar(&o.Threads, "threads", o.Threads, "that flag of the manager; 0 is its default")
	fs.IntVar(&o.PeerMost, "peer-most", o.PeerMost, "largest size for CronJobs without a throttle; 0 leaves them out")
	fs.IntVar(&o.ShippedMost, "shipped-most", o.ShippedMost, "largest size for CronJobs as shipped; 0 leaves them out")
	fs.Func("only", "`contestant` to run, such as floor, CronTab or \"CronJob, 5 workers\"; may be repeated", func(name string) error {
		if !slices.Contains(everybody, name) {
			return fmt.Errorf("the contestants are %q", everybody)
		}
		o.Only = append(o.Only, name)
		return nil
	})
	fs.BoolVar(&o.JobController, "job-controller", o.JobController, "also run Kubernetes' controller of Jobs")
	fs.IntVar(&o.IdleCronTabs, "idle-crontabs", o.IdleCronTabs, "CronTabs for requests, processor and memory; 0 leaves these out")
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long to watch idle CronTabs")
	fs.StringVar(&o.Binary, "keelson", o.Binary, "the `program` to measure; empty is bin/keelson")
	fs.Func("add", "`file` with the results of an earlier run, to which this one is added; may be repeated", func(file string) error {
		o.add = append(o.add, file)
		return nil
	})
	fs.StringVar(&o.plotFile, "plot", o.plotFile, "`file` for a picture of lag against size, an SVG; empty for none")
	o.AddFlags(fs)
	err := command.Parse(fs, args, &o, quick(), func(o *options) error {
		if o.Rounds < 1 || o.Connections < 1 {
			return errors.New("there must be a round and a connection at least")
		}
		return nil
	})
	return o, err
}
