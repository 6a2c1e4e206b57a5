// Command cluster measures how long Clusters take from their creation until a watch sees them ready, and from their
// deletion until nothing is left; how much memory one takes; and what a restart of the manager does to them. Beside them,
// in turns in the same run, stand a floor: the same components with the same flags, started by a shell script with
// certificates that were made before, to /readyz; and kwokctl with its binary runtime on the same components.
//
//	make bench-cluster
//	make bench-cluster ARGS='--sizes 1 --rounds 9 --json results.json'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/process"
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

	dir      string
	jsonFile string
	strict   bool
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

func main() {
	process.Shim() // this program is also the shim of the components that it starts
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // the flag package has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := run(ctx, o, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	if o.strict && missed > 0 {
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("cluster", flag.ContinueOnError)
	short := fs.Bool("quick", false, "only find out whether this benchmark works; flags after it still count")
	fs.Func("sizes", "numbers of clusters created at once, with commas between (1,3,8); 0 leaves them out", func(text string) (err error) {
		o.Sizes, err = parseSizes(text)
		return err
	})
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each contestant and size is measured")
	fs.BoolVar(&o.Peer, "peer", o.Peer, "let kwokctl take part, which is built from its module")
	fs.Func("memory", "numbers of clusters to measure the memory of, with commas between (1,8); 0 leaves it out", func(text string) (err error) {
		o.Memory, err = parseSizes(text)
		return err
	})
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long clusters are left alone before their memory is measured")
	fs.IntVar(&o.Restart, "restart", o.Restart, "clusters that a restart of the manager meets; 0 leaves it out")
	fs.DurationVar(&o.Watched, "watched", o.Watched, "how long they are watched after it")
	fs.StringVar(&o.Binary, "keelson", o.Binary, "the `program` to measure; empty is bin/keelson")
	fs.StringVar(&o.dir, "dir", o.dir, "`directory` for the data, on the disk that is to be measured with")
	fs.StringVar(&o.jsonFile, "json", o.jsonFile, "`file` for the results, also those of each round")
	fs.BoolVar(&o.strict, "strict", o.strict, "exit with 1 when a target was missed")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if *short {
		// Once more, on top of the other defaults.
		changed := quick()
		changed.jsonFile, changed.strict = o.jsonFile, o.strict
		o = changed
		if err := fs.Parse(args); err != nil {
			return o, err
		}
	}
	if fs.NArg() > 0 || o.Rounds < 1 || o.Restart < 0 || o.Restart > maxClusters {
		err := fmt.Errorf("there are no arguments, there must be a round at least, and at most %d clusters", maxClusters)
		fmt.Fprintln(fs.Output(), err)
		return o, err
	}
	return o, nil
}

// parseSizes returns the numbers of a list in order, without zeros.
func parseSizes(text string) ([]int, error) {
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > maxClusters {
			return nil, fmt.Errorf("%q is no number of clusters, which are at most %d", part, maxClusters)
		}
		if n > 0 {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// run measures everything, writes tables to stdout and progress to stderr, and returns how many targets were missed.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (missed int, err error) {
	r, err := measureAll(ctx, o, stderr)
	if err != nil {
		return 0, err
	}
	if missed, err = r.write(stdout); err != nil || o.jsonFile == "" {
		return missed, err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return missed, err
	}
	return missed, os.WriteFile(o.jsonFile, append(data, '\n'), 0o600)
}
