package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/command"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

var errPatience = errors.New("the patience of this benchmark is over")

// writers is how many connections the client has that creates objects.
const writers = 8

// image is what the containers run: the program started.
const image = "docker.io/library/bench-started:v1"

// bench is one run of this program.
type bench struct {
	command.Progress
	options options
	machine node.Machine
	binary  string // of keelson
	folder  string // what the image is made from
	cluster *cluster.Cluster
	node    *realNode
	floors  int // how many containers the floor has had
	results *results
}

// results are what a run has found out.
type results struct {
	measure.Run
	Versions versions `json:"versions"`
	Options  options  `json:"options"`
	// Starts are from the start of the program keelson-node, in an empty directory, until its Node was ready.
	Starts []time.Duration `json:"startsNanoseconds"`
	Bursts []*burst        `json:"bursts"`
	// Empty is the memory of the node without Pods, Full that with Options.Pods.
	Empty footprint `json:"empty"`
	Full  footprint `json:"full"`
	// Targets are filled in when the results are written.
	Targets []measure.Target `json:"targets"`
}

type versions struct {
	Keelson    string `json:"keelson"`
	Kubernetes string `json:"kubernetes"`
	Containerd string `json:"containerd"`
	Runtime    string `json:"runtime"`
}

// measureAll starts nodes, and measures everything on the last one.
func measureAll(ctx context.Context, o options, progress command.Progress) (_ *results, err error) {
	b := &bench{Progress: progress, options: o}
	b.results = &results{Run: measure.NewRun(), Options: o}
	if b.folder, err = os.MkdirTemp("", "keelson-bench-image-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	b.results.Load[0] = measure.Load()
	for i := range o.Starts {
		if i > 0 {
			if err := b.cluster.Stop(); err != nil {
				return nil, err
			}
		}
		if err := b.startNode(ctx); err != nil {
			return nil, err
		}
		b.Say("Start %d of %d: the node is ready after %s", i+1, o.Starts, measure.Seconds(b.results.Starts[i]))
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.loadImage(ctx); err != nil {
		return nil, err
	}
	if err := b.findVersions(ctx); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context) error{b.measureMemory, b.measureBursts} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	b.results.Load[1] = measure.Load()
	return b.results, nil
}

// prepare finds the programs, and builds the one that containers run.
func (b *bench) prepare(ctx context.Context) error {
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return err
	}
	b.machine = node.Look(filepath.Join(filepath.Dir(kube), "node"))
	missing := b.machine.Missing()
	for _, name := range []string{"nsenter", filepath.Join(b.machine.Programs, "ctr")} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine cannot run the benchmark; missing: %s", strings.Join(missing, "; "))
	}
	if b.binary, b.results.Versions.Keelson, err = program.Keelson(ctx, b.options.Binary); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(b.folder, "started"),
		"github.com/keelson-dev/keelson/bench/node/started")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program of the containers: %w: %s", err, output)
	}
	return nil
}

// startNode starts a control plane with a node, and notes how long the node took.
func (b *bench) startNode(ctx context.Context) (err error) {
	var took time.Duration
	b.cluster, err = cluster.StartWith(ctx, controlplane.Options{
		RealNode: &b.machine,
		Progress: func(s controlplane.Step) {
			if s.Name == "node" && s.Done {
				took = s.Took
			}
		},
	}, writers)
	if err != nil {
		return err
	}
	b.results.Starts = append(b.results.Starts, took)
	if b.node, err = findNode(ctx, b.cluster.Dir); err != nil {
		return errors.Join(err, b.cluster.Stop())
	}
	return nil
}

func (b *bench) loadImage(ctx context.Context) error {
	load := exec.CommandContext(ctx, b.binary, "image", "load", "--data-dir", b.cluster.Dir, "--name", image, b.folder)
	load.Env = append(os.Environ(), "KEELSON_NODE="+b.machine.Programs)
	if output, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("load the image: %w: %s", err, output)
	}
	return nil
}

func (b *bench) findVersions(ctx context.Context) (err error) {
	v := &b.results.Versions
	if v.Kubernetes, err = b.cluster.Version(); err != nil {
		return err
	}
	if v.Containerd, err = b.runtimeVersion(ctx); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, b.machine.Runtime, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", b.machine.Runtime, err)
	}
	v.Runtime, _, _ = strings.Cut(string(output), "\n")
	return nil
}

// measureBursts measures one size after the other; the contestants take turns.
func (b *bench) measureBursts(ctx context.Context) (err error) {
	if len(b.options.Sizes) == 0 {
		return nil
	}
	manager, err := program.StartManager(ctx, b.binary, b.cluster.Kubeconfig, filepath.Join(b.cluster.Dir, "manager.log"), "crontab")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	ctx, cancel := manager.During(ctx)
	defer cancel()
	for _, contestant := range []string{floor, keelson} { // whatever is done the first time
		if _, err := b.burst(ctx, contestant, 1); err != nil {
			return fmt.Errorf("warm up with %s: %w", contestant, err)
		}
	}
	for _, n := range b.options.Sizes {
		err := measure.Interleave(b.options.Rounds, b.contestants(), func(round int, contestant string) error {
			result, err := b.burst(ctx, contestant, n)
			if err != nil {
				return err
			}
			result.Contestant, result.Round = contestant, round
			b.results.Bursts = append(b.results.Bursts, result)
			b.Say("%d due, round %d of %d, %s: p50 %s, last %s", n, round+1, b.options.Rounds, contestant,
				measure.Milliseconds(result.Running.P50), measure.Milliseconds(result.Running.Max))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%d due: %w", n, err)
		}
	}
	return nil
}

// contestants returns those of a round: some take part several times.
func (b *bench) contestants() []string {
	var all []string
	for range b.options.Repeats {
		all = append(all, floor, keelson)
	}
	if b.options.CronJobs {
		all = append(all, cronJob)
	}
	return all
}
