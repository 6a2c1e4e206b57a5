// Command controlplane measures how long a control plane takes from the command to /readyz, and how much memory its
// components need. The floor, in turns with it, is a shell script that starts the same components with the same flags, and
// with certificates that exist before.
//
//	make bench-controlplane
//	make bench-controlplane ARGS='--rounds 15 --json results.json'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/cluster/floor"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	keelsonAPI = "keelson, etcd and API"
	keelsonAll = "keelson, everything"
	script     = "floor: script"
)

var (
	contestants = []string{keelsonAPI, keelsonAll, script}
	components  = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}
)

// startLimit is how many times as long as the script a start may take.
const startLimit = 1.15

func main() { harness.Main("controlplane", measure) }

type bench struct {
	*harness.Run
	idle time.Duration
	kube string // keelson-kube
	base string // for all data
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	dir := ""
	r.Flags.DurationVar(&b.idle, "idle", 20*time.Second, "how long to leave a control plane alone before its memory is measured")
	r.Flags.StringVar(&b.kube, "binary", "", "the keelson-kube to measure (default bin/keelson-kube)")
	r.Flags.StringVar(&dir, "dir", os.TempDir(), "`directory` for data, on the disk to measure with")
	if err := r.Parse(args, 7, "--rounds=1 --idle=1s"); err != nil {
		return err
	}
	if b.kube == "" {
		if b.kube, err = env.Binary("keelson-kube"); err != nil {
			return err
		}
	}
	if b.kube, err = filepath.Abs(b.kube); err != nil {
		return err
	}
	if b.base, err = os.MkdirTemp(dir, "bench-controlplane-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.base)) }()
	versions, err := harness.ComponentVersions(ctx, b.kube)
	if err != nil {
		return err
	}
	r.Note("components: %s; one binary; data on %s, with fsync", versions, harness.FileSystem(ctx, b.base))
	r.Note("from nothing to /readyz, polled every %s; %d rounds in turns", floor.PollInterval, r.Rounds)

	model, err := b.measureIdle(ctx)
	if err != nil {
		return err
	}
	err = r.InTurns(r.Rounds, 1, contestants, "ready", func(s *harness.Sample) error {
		dir := filepath.Join(b.base, "run")
		if s.Contestant == script {
			return errors.Join(startFloor(ctx, s, model, dir), os.RemoveAll(dir))
		}
		return errors.Join(b.startKeelson(ctx, s, dir), os.RemoveAll(dir))
	})
	if err != nil {
		return err
	}

	r.RatioTarget("start of etcd and API, in times of the script", "≤", startLimit, r.Samples.Ratios(keelsonAPI, script, 1, "ready", harness.Last))
	r.SampleTable(1, contestants,
		harness.Column{Header: "/readyz", Figure: "ready", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "× script", Figure: "ready", Stat: harness.Last, Over: script},
		harness.Column{Header: "settled", Figure: "settled", Stat: harness.Last, Format: harness.Seconds})
	r.Printf("\nMemory after %s, and CPU while idle:\n", b.idle)
	r.SampleTable(0, append(components, "all"), append([]harness.Column{
		{Header: "CPU", Figure: "busy", Stat: harness.Last, Format: harness.Percent},
		{Header: "PSS of the shim", Figure: "shim", Stat: harness.Last, Format: harness.Megabytes},
	}, harness.MemoryColumns...)...)
	return nil
}

// startFloor measures from the start of the shell. The certificates exist before.
func startFloor(ctx context.Context, s *harness.Sample, model *floor.Model, dir string) (err error) {
	f, err := model.Prepare(dir, false)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	err = f.AwaitReady(ctx)
	s.SetTimes("ready", time.Since(began))
	return err
}

// startKeelson measures from the call, in an empty directory, without certificates.
func (b *bench) startKeelson(ctx context.Context, s *harness.Sample, dir string) (err error) {
	opts := controlplane.Options{Dir: dir, Binary: b.kube, APIOnly: true}
	if s.Contestant == keelsonAll {
		opts = controlplane.Options{Dir: dir, Binary: b.kube, Nodes: 1}
	}
	began := time.Now()
	cp, err := controlplane.Start(ctx, opts)
	if err != nil {
		return err
	}
	s.SetTimes("ready", time.Since(began))
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if opts.APIOnly {
		return nil
	}
	err = cp.Settle(ctx) // until Pods can run
	s.SetTimes("settled", time.Since(began))
	return err
}

// measureIdle starts a control plane with everything, leaves it alone for a while and measures its processes. It returns
// the model of the floor.
func (b *bench) measureIdle(ctx context.Context) (_ *floor.Model, err error) {
	b.Say("Watching a control plane for %s", b.idle)
	dir := filepath.Join(b.base, "model")
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: b.kube, Nodes: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if err := cp.Settle(ctx); err != nil {
		return nil, err
	}
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		return nil, err
	}
	pids, used := map[string]int{}, map[string]float64{}
	for _, s := range statuses {
		pids[s.ID] = s.PID
	}
	// The first half belongs to the start.
	if err := harness.Pause(ctx, b.idle/2); err != nil {
		return nil, err
	}
	for _, name := range components {
		used[name] = harness.ProcessorTime(pids[name])
	}
	began := time.Now()
	if err := harness.Pause(ctx, b.idle/2); err != nil {
		return nil, err
	}
	var memory harness.Memory
	var busy, shims float64
	for _, name := range components {
		part := (harness.ProcessorTime(pids[name]) - used[name]) / time.Since(began).Seconds()
		m, shim, err := harness.MemoryWithShim(pids[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b.setIdle(name, m, shim.PSS, part)
		memory, shims, busy = memory.Plus(m), shims+shim.PSS, busy+part
	}
	b.setIdle("all", memory, shims, busy)
	return floor.NewModel(dir, cp.Config(), filepath.Join(b.base, "files"))
}

func (b *bench) setIdle(name string, m harness.Memory, shim, busy float64) {
	s := b.NewSample(name, 0, 0)
	s.SetMemory(m)
	s.Set("shim", shim)
	s.Set("busy", busy)
}
