package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/command"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// bench is one run of this program.
type bench struct {
	command.Progress
	options options
	cluster *cluster.Cluster
	binary  string // of keelson
	kube    string // the binary of Kubernetes' components
	results *results
}

// results are what a run has found out.
type results struct {
	measure.Run
	Versions versions `json:"versions"`
	Options  options  `json:"options"`
	Bursts   []*burst `json:"bursts"`
	// Idle is about Options.IdleCronTabs; nil without.
	Idle *idle `json:"idle,omitempty"`
	// Targets are filled in when the results are written.
	Targets []measure.Target `json:"targets"`
}

type versions struct {
	Keelson    string `json:"keelson"`
	Kubernetes string `json:"kubernetes"`
}

// measureAll starts a control plane, measures everything on it, and stops it.
func measureAll(ctx context.Context, o options, progress command.Progress) (_ *results, err error) {
	b := &bench{Progress: progress, options: o}
	b.results = &results{Run: measure.NewRun(), Options: o}
	b.Say("Starting a control plane")
	if b.cluster, err = cluster.Start(ctx, false, o.Connections); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	if o.JobController {
		jobs, err := b.startKubernetes(ctx, "job-controller", unthrottled...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, jobs.Stop()) }()
	}
	b.results.Load[0] = measure.Load()
	for _, part := range []func(context.Context) error{b.warmServer, b.measureBursts, b.measureIdle} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	b.results.Load[1] = measure.Load()
	for _, file := range o.add {
		if err := b.results.add(file); err != nil {
			return nil, err
		}
	}
	return b.results, nil
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.kube, err = env.Binary("keelson-kube"); err != nil {
		return err
	}
	v := &b.results.Versions
	if b.binary, v.Keelson, err = program.Keelson(ctx, b.options.Binary); err != nil {
		return err
	}
	v.Kubernetes, err = b.cluster.Version()
	return err
}

// warmServer runs a burst that does not count: the API server builds some of what it needs for a kind of object when
// it first meets it.
func (b *bench) warmServer(ctx context.Context) error {
	if len(b.options.Sizes) == 0 {
		return nil
	}
	_, err := b.burst(ctx, floor, 0, b.options.warm*10)
	return err
}

// measureBursts measures one size after the other; the contestants take turns.
func (b *bench) measureBursts(ctx context.Context) error {
	for _, n := range b.options.Sizes {
		err := measure.Interleave(b.options.Rounds, b.contestants(n), func(round int, contestant string) error {
			result, err := b.burst(ctx, contestant, round, n)
			if err != nil {
				return err
			}
			b.results.Bursts = append(b.results.Bursts, result)
			b.Say("%d objects, round %d of %d, %s: first %s, p50 %s, last %s", n, round+1, b.options.Rounds, contestant,
				measure.Milliseconds(result.Lag.Min), measure.Milliseconds(result.Lag.P50), measure.Milliseconds(result.Lag.Max))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%d objects: %w", n, err)
		}
	}
	return nil
}

// contestants returns those that take part in bursts of a size.
func (b *bench) contestants(n int) []string {
	contestants := []string{floor, keelson}
	if n <= b.options.PeerMost {
		contestants = append(contestants, cronJob50, cronJob5)
	}
	if n <= b.options.ShippedMost {
		contestants = append(contestants, cronJobShipped)
	}
	if only := b.options.Only; len(only) > 0 {
		contestants = slices.DeleteFunc(contestants, func(name string) bool { return !slices.Contains(only, name) })
	}
	return contestants
}

// add adds the bursts of an earlier run, and what it found out about idle CronTabs if this one did not look.
func (r *results) add(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var earlier results
	if err := json.Unmarshal(data, &earlier); err != nil {
		return fmt.Errorf("%s has no results: %w", file, err)
	}
	if earlier.Versions != r.Versions || earlier.Machine != r.Machine {
		return fmt.Errorf("the results in %s are of %+v on %+v, and not of %+v on %+v",
			file, earlier.Versions, earlier.Machine, r.Versions, r.Machine)
	}
	r.Bursts = append(r.Bursts, earlier.Bursts...)
	r.Options.Sizes = slices.Compact(slices.Sorted(slices.Values(append(r.Options.Sizes, earlier.Options.Sizes...))))
	if r.Idle == nil && earlier.Idle != nil {
		r.Idle, r.Options.IdleCronTabs, r.Options.Idle = earlier.Idle, earlier.Options.IdleCronTabs, earlier.Options.Idle
	}
	return nil
}
