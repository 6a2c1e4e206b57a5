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

func defaults() options { return options{Rounds: 7, Idle: 20 * time.Second, dir: os.TempDir()} }

// quick is for finding out whether the benchmark still works. Its numbers mean nothing.
func quick() options { return options{Rounds: 1, Idle: time.Second, dir: os.TempDir()} }

var benchmark = command.Benchmark[options, *results]{Parse: parse, Measure: measureAll}

func main() { benchmark.Main() }

func parse(args []string) (options, error) {
	o := defaults()
	fs := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	fs.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each contestant starts")
	fs.DurationVar(&o.Idle, "idle", o.Idle, "how long a control plane is left alone before its memory is measured")
	fs.StringVar(&o.binary, "binary", o.binary, "keelson-kube; bin/keelson-kube if empty")
	fs.StringVar(&o.dir, "dir", o.dir, "`directory` for data, on the disk that is to be measured with")
	o.AddFlags(fs)
	err := command.Parse(fs, args, &o, quick(), func(o *options) error {
		if o.Rounds < 1 || o.Idle <= 0 {
			return errors.New("there must be a round at least, and a time to leave a control plane alone")
		}
		return nil
	})
	return o, err
}

// measureAll looks at a control plane that has nothing to do, and then has the contestants start in turns.
func measureAll(ctx context.Context, o options, progress command.Progress) (_ *results, err error) {
	if o.binary == "" {
		if o.binary, err = env.Binary("keelson-kube"); err != nil {
			return nil, err
		}
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return nil, err
	}
	base, err := os.MkdirTemp(o.dir, "bench-controlplane-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(base)) }()

	r := &results{Run: measure.NewRun(), FileSystem: measure.FileSystem(base), Options: o, Starts: map[string][]start{}}
	if r.Versions, err = program.ComponentVersions(ctx, o.binary); err != nil {
		return nil, err
	}
	progress.Say("A control plane to look at, for %s", o.Idle)
	model, err := r.measureIdle(ctx, filepath.Join(base, "model"), o)
	if err != nil {
		return nil, err
	}
	r.Load[0] = measure.Load()
	err = measure.Interleave(o.Rounds, contestants, func(round int, contestant string) error {
		dir := filepath.Join(base, "run")
		started, err := r.start(ctx, contestant, dir, o.binary, model)
		if err != nil {
			return err
		}
		r.Starts[contestant] = append(r.Starts[contestant], started)
		progress.Say("Round %d, %s: %s", round+1, contestant, measure.Seconds(started.Ready))
		return os.RemoveAll(dir)
	})
	if err != nil {
		return nil, err
	}
	r.Load[1] = measure.Load()
	return r, nil
}
