package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/command"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
)

// bench is one run of this program.
type bench struct {
	command.Progress
	options  options
	cluster  *cluster.Cluster
	binary   string // of keelson
	peerPath string // the binary, "" without the peer
	results  *results
}

// results are what a run has found out.
type results struct {
	measure.Run
	Versions versions `json:"versions"`
	Options  options  `json:"options"`
	// Bursts are those of Options.Foos objects, PeerBursts those of Options.PeerFoos.
	Bursts     []*burst `json:"bursts"`
	PeerBursts []*burst `json:"peerBursts,omitempty"`
	// Idle is about Options.IdleFoos; nil without.
	Idle *idle `json:"idle,omitempty"`
	// Targets are filled in when the results are written.
	Targets []measure.Target `json:"targets"`
}

type versions struct {
	Keelson    string `json:"keelson"`
	Kubernetes string `json:"kubernetes"`
	Peer       string `json:"peer,omitempty"`
}

// measureAll starts a control plane, measures everything on it, and stops it.
func measureAll(ctx context.Context, o options, progress command.Progress) (_ *results, err error) {
	b := &bench{Progress: progress, options: o}
	b.results = &results{Run: measure.NewRun(), Options: o}
	b.Say("Starting a control plane")
	if b.cluster, err = cluster.Start(ctx, o.Full, o.Connections); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	b.results.Load[0] = measure.Load()
	for _, part := range []func(context.Context) error{b.measureBursts, b.measurePeer, b.measureIdle} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	b.results.Load[1] = measure.Load()
	return b.results, nil
}

func (b *bench) prepare(ctx context.Context) (err error) {
	v := &b.results.Versions
	if b.binary, v.Keelson, err = program.Keelson(ctx, b.options.Binary); err != nil {
		return err
	}
	if v.Kubernetes, err = b.cluster.Version(); err != nil {
		return err
	}
	if b.options.PeerFoos == 0 {
		return nil
	}
	b.Say("Building %s", peerModule)
	b.peerPath, v.Peer, err = b.buildPeer(ctx)
	return err
}

// measureBursts runs the floors and keelson in turns. A short round before the others does not count: the API server
// builds some of what it needs for a kind of object when it first meets it.
func (b *bench) measureBursts(ctx context.Context) error {
	contestants := []string{floorDeployments, floorBoth, keelson}
	for _, contestant := range contestants {
		if b.options.short {
			break
		}
		if _, err := b.burst(ctx, contestant, 0, min(b.options.Foos, 200)); err != nil {
			return fmt.Errorf("warm up, %s: %w", contestant, err)
		}
	}
	return measure.Interleave(b.options.Rounds, contestants, func(round int, contestant string) error {
		result, err := b.burst(ctx, contestant, round, b.options.Foos)
		if err != nil {
			return err
		}
		b.results.Bursts = append(b.results.Bursts, result)
		b.Say("Round %d of %d, %d objects, %s: %s", round+1, b.options.Rounds, result.Objects, contestant, measure.Seconds(result.Total))
		return nil
	})
}

// measurePeer runs sample-controller and keelson with the same number of Foos, once: the former is throttled by its
// client so much that nothing else matters to it.
func (b *bench) measurePeer(ctx context.Context) error {
	if b.peerPath == "" {
		return nil
	}
	return measure.Interleave(1, []string{keelson, peer}, func(round int, contestant string) error {
		result, err := b.burst(ctx, contestant, round, b.options.PeerFoos)
		if err != nil {
			return err
		}
		b.results.PeerBursts = append(b.results.PeerBursts, result)
		b.Say("%d objects, %s: %s", result.Objects, contestant, measure.Seconds(result.Total))
		return nil
	})
}

// processes returns those that take part in a burst; the controller may be nil.
func (b *bench) processes(controller *program.Program) measure.Processes {
	all := measure.Processes{"client": os.Getpid()}
	maps.Copy(all, b.cluster.Components)
	if controller != nil {
		all[controller.Name] = controller.PID()
	}
	return all
}
