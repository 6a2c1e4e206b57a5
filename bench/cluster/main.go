// Command cluster measures how long Clusters take from their creation until a watch sees them ready, and from their
// deletion until nothing is left; how much memory one takes; and what a restart of the manager does to them. Beside them,
// in turns in the same run, stand a floor: the same components with the same flags, started by a shell script with
// certificates that were made before, to /readyz; and kwokctl with its binary runtime on the same components.
//
//	make bench-cluster
//	make bench-cluster ARGS='--sizes 1 --rounds 9 --json results.json'
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/command"
)

// options say what is measured.
type options struct {
	// Sizes are the numbers of clusters that are created at the same moment, each measured Rounds times.
	Sizes  []int `json:"sizes"`
	Rounds int   `json:"rounds"`
	// Peer says that kwokctl takes part.
	Peer bool `json:"peer"`
	// Memory are the numbers of clusters that run side by side when memory is measured, after Idle.
	Memory []int         `json:"memory"`
	Idle   time.Duration `json:"idleNanoseconds"`
	// Restart is how many clusters there are when the manager is started again; 0 leaves that out. They are watched for
	// Watched after that.
	Restart int           `json:"restart"`
	Watched time.Duration `json:"watchedNanoseconds"`
	// Binary is the program that is measured.
	Binary string `json:"binary,omitempty"`

	dir            string
	command.Output `json:"-"`
}

// maxClusters keeps a mistyped number from using up the memory of a machine.
const maxClusters = 32

func defaults() options {
	return options{Sizes: []int{1, 3, 8}, Rounds: 5, Peer: true, Memory: []int{1, 8}, Idle: 30 * time.Second,
		Restart: 8, Watched: 15 * time.Second, dir: os.TempDir()}
}

// quick is for finding out whether the benchmark still works. Its numbers mean nothing.
func quick() options {
	return options{Sizes: []int{1}, Rounds: 1, Memory: []int{1}, Restart: 1, dir: os.TempDir()}
}

var benchmark = command.Benchmark[options, *results]{Parse: parse, Measure: measureAll}

func main() { benchmark.Main() }

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("cluster", flag.ContinueOnError)
	fs.Func("sizes", "numbers of clusters created at once, with commas between (1,3,8); 0 leaves them out", command.Sizes(&o.Sizes, "clusters", maxClusters))
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each contestant and size is measured")
	fs.BoolVar(&o.Peer, "peer", o.Peer, "let kwokctl take part, which is built from its module")
	fs.Func("memory", "numbers of clusters to measure the memory of, with commas between (1,8); 0 leaves it out", command.Sizes(&o.Memory, "clusters", maxClusters))
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long clusters are left alone before their memory is measured")
	fs.IntVar(&o.Restart, "restart", o.Restart, "clusters that a restart of the manager meets; 0 leaves it out")
	fs.DurationVar(&o.Watched, "watched", o.Watched, "how long they are watched after it")
	fs.StringVar(&o.Binary, "keelson", o.Binary, "the `program` to measure; empty is bin/keelson")
	fs.StringVar(&o.dir, "dir", o.dir, "`directory` for the data, on the disk that is to be measured with")
	o.AddFlags(fs)
	err := command.Parse(fs, args, &o, quick(), func(o *options) error {
		if o.Rounds < 1 || o.Restart < 0 || o.Restart > maxClusters {
			return fmt.Errorf("there must be a round at least, and at most %d clusters", maxClusters)
		}
		return nil
	})
	return o, err
}
