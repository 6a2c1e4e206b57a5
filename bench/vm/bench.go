package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/command"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// writers is how many connections the client has that creates machines.
const writers = 8

// bench is one run of this program.
type bench struct {
	command.Progress
	options  options
	cluster  *cluster.Cluster
	binary   string // of keelson
	guest    string // the folder
	template *template
	results  *results
}

// results are what a run has found out.
type results struct {
	measure.Run
	Versions versions `json:"versions"`
	Options  options  `json:"options"`
	// Emulated says that the processors of the guests were emulated.
	Emulated bool     `json:"emulated"`
	Bursts   []*burst `json:"bursts"`
	// Steady is about Options.Steady machines; nil without.
	Steady *steady `json:"steady,omitempty"`
	// Targets are filled in when the results are written.
	Targets []measure.Target `json:"targets"`
}

type versions struct {
	Keelson    string `json:"keelson"`
	Kubernetes string `json:"kubernetes"`
	QEMU       string `json:"qemu"`
}

// The contestants.
const (
	// bare: a shell script starts QEMUs, and a client waits at the sockets of their guest agents.
	bare = "bare QEMU"
	// keelson: `keelson manager` starts them for VirtualMachines.
	keelson = "VirtualMachine"
)

// measureAll starts a control plane, measures everything on it, and stops it.
func measureAll(ctx context.Context, o options, progress command.Progress) (_ *results, err error) {
	b := &bench{Progress: progress, options: o}
	b.results = &results{Run: measure.NewRun(), Options: o}
	b.Say("Starting a control plane")
	if b.cluster, err = cluster.Start(ctx, false, writers); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	b.results.Load[0] = measure.Load()
	if err := b.measureBursts(ctx); err != nil {
		return nil, err
	}
	if err := b.measureSteady(ctx); err != nil {
		return nil, err
	}
	b.results.Load[1] = measure.Load()
	return b.results, nil
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if b.guest = b.options.Guest; b.guest == "" {
		if b.guest, err = env.Binary(filepath.Join("guest", "guest.json")); err != nil {
			return err
		}
		b.guest = filepath.Dir(b.guest)
	}
	v := &b.results.Versions
	if b.binary, v.Keelson, err = program.Keelson(ctx, b.options.Binary); err != nil {
		return err
	}
	if v.Kubernetes, err = b.cluster.Version(); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, "qemu-system-x86_64", "--version").Output()
	if err != nil {
		return fmt.Errorf("ask QEMU for its version: %w", err)
	}
	line, _, _ := strings.Cut(string(output), "\n")
	v.QEMU = strings.TrimPrefix(line, "QEMU emulator version ")
	return nil
}

// startManager starts a manager that keeps its machines in a folder of this run.
func (b *bench) startManager(ctx context.Context) (*program.Manager, error) {
	return program.StartManager(ctx, b.binary, b.cluster.Kubeconfig, filepath.Join(b.cluster.Dir, "manager.log"), "virtualmachine",
		"--state-dir="+b.stateDir(), "--vm-guest-dir="+b.guest)
}

// withManager calls work while a manager runs; the context ends when it does. No machine is left afterwards.
func (b *bench) withManager(ctx context.Context, work func(context.Context, *program.Manager) error) (err error) {
	running, err := b.startManager(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop(), b.endMachines(ctx)) }()
	ctx, cancel := running.During(ctx)
	defer cancel()
	return work(ctx, running)
}

// endMachines ends what machines there are. They outlive their manager, and those of a run that was interrupted must
// not outlive that.
func (b *bench) endMachines(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return qemu.StopAll(ctx, manager.MachinesDir(b.stateDir()), 0)
}

// stateDir is the folder in which the manager keeps its machines.
func (b *bench) stateDir() string { return filepath.Join(b.cluster.Dir, "state") }

// measureBursts measures one size after the other; the contestants take turns.
func (b *bench) measureBursts(ctx context.Context) error {
	if len(b.options.Sizes) == 0 {
		return nil
	}
	return b.withManager(ctx, func(ctx context.Context, _ *program.Manager) error {
		b.Say("Starting a machine to learn the arguments of QEMU")
		if err := b.learn(ctx); err != nil {
			return fmt.Errorf("learn the arguments of QEMU: %w", err)
		}
		for _, n := range b.options.Sizes {
			rounds := b.options.rounds(n)
			err := measure.Interleave(rounds, []string{bare, keelson}, func(round int, contestant string) error {
				result, err := b.burst(ctx, contestant, n)
				if err != nil {
					return err
				}
				result.Contestant, result.Round, result.Machines = contestant, round, n
				b.results.Bursts = append(b.results.Bursts, result)
				b.Say("%d machines, round %d of %d, %s: p50 %s, last %s", n, round+1, rounds, contestant,
					measure.Milliseconds(result.Ready.P50), measure.Milliseconds(result.Ready.Max))
				return nil
			})
			if err != nil {
				return fmt.Errorf("%d machines: %w", n, err)
			}
		}
		return nil
	})
}
