// Command controlplane measures how long a control plane takes from the command to /readyz, and how much memory its
// components need. Beside it, in turns, stand two floors: the same components with the same flags, started by a shell
// script with certificates that were made before.
//
//	make bench-controlplane
//	make bench-controlplane ARGS='--rounds 15 --json results.json'
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
	"path/filepath"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
	// As in keelson itself: takes over when this program was started as the shim of a component.
	_ "github.com/keelson-dev/keelson/internal/process/shim"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// options say what is measured.
type options struct {
	// Rounds is how often each contestant starts.
	Rounds int `json:"rounds"`
	// Idle is how long a control plane is left alone before its memory is measured.
	Idle time.Duration `json:"idleNanoseconds"`

	binary   string
	dir      string
	jsonFile string
	strict   bool
}

func main() {
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
	var o options
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.IntVar(&o.Rounds, "rounds", 7, "how often each contestant starts")
	flags.DurationVar(&o.Idle, "idle", 20*time.Second, "how long a control plane is left alone before its memory is measured")
	flags.StringVar(&o.binary, "binary", "", "keelson-kube; bin/keelson-kube if empty")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "directory for data, on the disk that is to be measured with")
	flags.StringVar(&o.jsonFile, "json", "", "also write the results to this file")
	flags.BoolVar(&o.strict, "strict", false, "fail when the target is missed")
	return o, flags.Parse(args)
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
	if missed, err = r.write(stdout); err != nil || o.jsonFile == "" {
		return missed, err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return missed, err
	}
	return missed, os.WriteFile(o.jsonFile, append(data, '\n'), 0o644)
}
