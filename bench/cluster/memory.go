package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// componentNames are the components of a cluster, in the order of tables.
var componentNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

var componentCount = len(componentNames)

// footprint is the memory of clusters that run side by side and have nothing to do.
type footprint struct {
	Contestant string `json:"contestant"`
	Clusters   int    `json:"clusters"`
	// Components are the means over all clusters, in bytes; Shims are the processes that wait for the components.
	Components map[string]measure.Memory `json:"components"`
	Shims      measure.Memory            `json:"shims"`
	// Most is the PSS of the largest cluster, shims included.
	Most int64 `json:"mostBytes"`
}

// total is the mean of a cluster.
func (f *footprint) total() measure.Memory {
	sum := f.Shims
	for _, m := range f.Components {
		sum = plus(sum, m)
	}
	return sum
}

func plus(a, b measure.Memory) measure.Memory {
	return measure.Memory{RSS: a.RSS + b.RSS, PSS: a.PSS + b.PSS, Peak: a.Peak + b.Peak, File: a.File + b.File}
}

func divide(a measure.Memory, n int) measure.Memory {
	by := int64(n)
	return measure.Memory{RSS: a.RSS / by, PSS: a.PSS / by, Peak: a.Peak / by, File: a.File / by}
}

// components returns the pids of the components that run in a directory.
func components(dir string) (map[string]int, error) {
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, s := range statuses {
		if s.State == process.Running && s.PID != 0 { // a shim that starts one does not know its id at once
			pids[s.ID] = s.PID
		}
	}
	return pids, nil
}

// measureMemory measures clusters that have been left alone for a while: ours, and one of kwokctl.
func (b *bench) measureMemory(ctx context.Context) error {
	for _, n := range b.options.Memory {
		b.Say("Memory of %d clusters, after %s", n, b.options.Idle)
		if err := b.measureOurMemory(ctx, n); err != nil {
			return fmt.Errorf("memory of %d clusters: %w", n, err)
		}
	}
	if b.peer == nil || len(b.options.Memory) == 0 {
		return nil
	}
	b.Say("Memory of a cluster of kwokctl, after %s", b.options.Idle)
	return b.measurePeerMemory(ctx)
}

func (b *bench) measureOurMemory(ctx context.Context, n int) error {
	o, err := b.observe(ctx)
	if err != nil {
		return err
	}
	defer o.cancel()
	names, uids, _, err := b.create(ctx, o, n)
	if err != nil {
		return err
	}
	if err := b.awaitComponents(ctx, uids); err != nil {
		return err
	}
	if err := measure.Pause(ctx, b.options.Idle); err != nil {
		return err
	}
	f := &footprint{Contestant: keelson, Clusters: n, Components: map[string]measure.Memory{}}
	for _, uid := range uids {
		pids, err := components(b.dir(uid))
		if err != nil {
			return err
		}
		if err := f.add(pids, true); err != nil {
			return err
		}
	}
	b.results.Memory = append(b.results.Memory, f.mean())
	_, err = b.remove(ctx, o, names, uids)
	return err
}

func (b *bench) measurePeerMemory(ctx context.Context) error {
	const name = "memory"
	if _, err := b.peer.configure(name); err != nil {
		return err
	}
	if err := b.peer.create(ctx, name); err != nil {
		return err
	}
	err := measure.Pause(ctx, b.options.Idle)
	f := &footprint{Contestant: kwokctl, Clusters: 1, Components: map[string]measure.Memory{}}
	pids, pidsErr := b.peer.pids(name)
	err = errors.Join(err, pidsErr, f.add(pids, false), b.peer.delete(context.WithoutCancel(ctx), name))
	b.results.Memory = append(b.results.Memory, f.mean())
	return err
}

// add adds the processes of a cluster.
func (f *footprint) add(pids map[string]int, hasShims bool) error {
	var all int64
	for name, pid := range pids {
		memory, err := measure.MemoryOf(pid)
		if err != nil {
			return err
		}
		name = strings.TrimSuffix(name, "-controller") // kwok, as kwokctl calls it
		f.Components[name] = plus(f.Components[name], memory)
		all += memory.PSS
		if !hasShims {
			continue
		}
		shim, err := measure.ParentOf(pid)
		if err != nil {
			return err
		}
		if memory, err = measure.MemoryOf(shim); err != nil {
			return err
		}
		f.Shims = plus(f.Shims, memory)
		all += memory.PSS
	}
	f.Most = max(f.Most, all)
	return nil
}

// mean turns sums into means.
func (f *footprint) mean() *footprint {
	for name, m := range f.Components {
		f.Components[name] = divide(m, f.Clusters)
	}
	f.Shims = divide(f.Shims, f.Clusters)
	return f
}
