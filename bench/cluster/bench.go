package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/command"
	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	keelson = "keelson"
	script  = "floor: script"
	kwokctl = "kwokctl"
)

// bench is one run of this program.
type bench struct {
	command.Progress
	options options
	results *results

	host    *cluster.Cluster // where the Clusters are objects
	base    string           // directory of everything that is measured
	binary  string           // of keelson
	manager *program.Manager
	model   *floor.Model // of the script
	peer    *peer        // nil without
}

// results are what a run has found out.
type results struct {
	measure.Run
	FileSystem string       `json:"fileSystem"`
	Versions   versions     `json:"versions"`
	Options    options      `json:"options"`
	Runs       []*sample    `json:"runs"`
	Memory     []*footprint `json:"memory"`
	Restarts   []*restart   `json:"restarts"`
	// Targets are filled in when the results are written.
	Targets []measure.Target `json:"targets"`
}

type versions struct {
	Keelson    string `json:"keelson"`
	Components string `json:"components"`
	Kwokctl    string `json:"kwokctl,omitempty"`
}

// sample is one contestant with so many clusters, from nothing to nothing.
type sample struct {
	Contestant string `json:"contestant"`
	Round      int    `json:"round"`
	Clusters   int    `json:"clusters"`
	// Ready is when each of them was ready, after the moment at which all were asked for. API is when each answered
	// /readyz, where somebody else decides on Ready.
	Ready []time.Duration `json:"readyNanoseconds"`
	API   []time.Duration `json:"apiNanoseconds,omitempty"`
	// Gone is when nothing was left of each, after the moment at which all were deleted.
	Gone []time.Duration `json:"goneNanoseconds,omitempty"`
}

// measureAll measures everything on a control plane of its own.
func measureAll(ctx context.Context, o options, progress command.Progress) (_ *results, err error) {
	b := &bench{Progress: progress, options: o}
	b.results = &results{Run: measure.NewRun(), Options: o}
	if b.base, err = os.MkdirTemp(o.dir, "bench-cluster-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.base)) }()
	b.Say("Starting a control plane and the manager")
	if b.host, err = cluster.Start(ctx, false, 1); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.host.Stop()) }()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	// Whatever happened: clusters outlive the manager, and this program.
	defer func() { err = errors.Join(err, b.stopManager(), b.endAll(context.WithoutCancel(ctx))) }()
	for _, part := range []func(context.Context) error{b.startManager, b.makeModel, b.measureRuns, b.measureMemory, b.measureRestarts} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	b.results.Load[1] = measure.Load()
	return b.results, nil
}

func (b *bench) prepare(ctx context.Context) (err error) {
	r := b.results
	r.FileSystem = measure.FileSystem(b.base)
	if b.binary, r.Versions.Keelson, err = program.Keelson(ctx, b.options.Binary); err != nil {
		return err
	}
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return err
	}
	if kube, err = filepath.Abs(kube); err != nil {
		return err
	}
	if r.Versions.Components, err = program.ComponentVersions(ctx, kube); err != nil || !b.options.Peer {
		return err
	}
	b.Say("Building kwokctl")
	if b.peer, err = newPeer(ctx, filepath.Join(b.base, "kwokctl"), kube); err != nil {
		return err
	}
	r.Versions.Kwokctl = b.peer.version
	return nil
}

// measureRuns measures one size after the other; the contestants take turns.
func (b *bench) measureRuns(ctx context.Context) error {
	contestants := []string{keelson, script}
	if b.peer != nil {
		contestants = append(contestants, kwokctl)
	}
	b.results.Load[0] = measure.Load()
	for _, n := range b.options.Sizes {
		err := measure.Interleave(b.options.Rounds, contestants, func(round int, contestant string) error {
			s := &sample{Contestant: contestant, Round: round, Clusters: n}
			var err error
			switch contestant {
			case keelson:
				err = b.runKeelson(ctx, s)
			case script:
				err = b.runFloor(ctx, s)
			case kwokctl:
				err = b.runPeer(ctx, s)
			}
			if err != nil {
				return err
			}
			b.results.Runs = append(b.results.Runs, s)
			b.Say("%d clusters, round %d of %d, %s: all ready after %s", n, round+1, b.options.Rounds, contestant, measure.Seconds(last(s.Ready)))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%d clusters: %w", n, err)
		}
	}
	return nil
}
