// Command controlplane measures how long a control plane takes from the command to /readyz, and how much memory its
// components need. Beside it, in turns, stand two floors: the same components with the same flags, started by a shell
// script with certificates that were made before.
//
//	make bench-controlplane
//	make bench-controlplane ARGS='--rounds 15 --json results.json'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/command"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// options say what is measured.
type options struct {
	// Rounds is how often each contestant starts.
	Rounds int `json:"rounds"`
	// Idle is how long a control plane is left alone before its memory is measured.
	Idle time.Duration `json:"idleNanoseconds"`

	binary         string
	dir            string
	command.Output `json:"-"`
}

func main() { command.Main(parse, run) }

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.IntVar(&o.Rounds, "rounds", 7, "how often each contestant starts")
	flags.DurationVar(&o.Idle, "idle", 20*time.Second, "how long a control plane is left alone before its memory is measured")
	flags.StringVar(&o.binary, "binary", "", "keelson-kube; bin/keelson-kube if empty")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "directory for data, on the disk that is to be measured with")
	o.AddFlags(flags)
	err := flags.Parse(args)
	return o, err
}

// run measures everything and writes the results. It returns how many targets were missed.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (missed int, err error) {
	if o.binary == "" {
		if o.binary, err = env.Binary("keelson-kube"); err != nil {
			return 0, err
		}
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return 0, err
	}
	base, err := os.MkdirTemp(o.dir, "bench-controlplane-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()

	r := &results{Began: time.Now(), Machine: measure.ThisMachine(), FileSystem: measure.FileSystem(base), Options: o, Starts: map[string][]start{}}
	if r.Versions, err = program.ComponentVersions(ctx, o.binary); err != nil {
		return 0, err
	}
	fmt.Fprintf(stderr, "A control plane to look at, for %s\n", o.Idle)
	model, err := r.measureIdle(ctx, filepath.Join(base, "model"), o)
	if err != nil {
		return 0, err
	}
	r.Load[0] = measure.Load()
	err = measure.Interleave(o.Rounds, contestants, func(round int, contestant string) error {
		dir := filepath.Join(base, "run")
		started, err := r.start(ctx, contestant, dir, o.binary, model)
		if err != nil {
			return err
		}
		r.Starts[contestant] = append(r.Starts[contestant], started)
		fmt.Fprintf(stderr, "Round %d, %s: %s\n", round+1, contestant, measure.Seconds(started.Ready))
		return os.RemoveAll(dir)
	})
	if err != nil {
		return 0, err
	}
	r.Load[1] = measure.Load()
	if missed, err = r.write(stdout); err != nil {
		return missed, err
	}
	return missed, o.Save(r)
}
