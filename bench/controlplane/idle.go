package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// component is what one component needs when nothing happens.
type component struct {
	Name   string         `json:"name"`
	Memory measure.Memory `json:"memory"`
	Shim   measure.Memory `json:"shim"`      // of the process that waits for the component
	Busy   float64        `json:"processor"` // share of one processor, while idle
}

// measureIdle starts a control plane with everything, leaves it alone for a while and looks at its processes. It
// returns what the floor is made like.
func (r *results) measureIdle(ctx context.Context, dir string, o options) (_ *floor.Model, err error) {
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Binary: o.binary, Nodes: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cp.Stop(context.WithoutCancel(ctx))) }()
	if err := cp.Settle(ctx); err != nil {
		return nil, err
	}
	pids, err := findComponents(dir)
	if err != nil {
		return nil, err
	}
	// The first seconds belong to the start.
	if err := measure.Pause(ctx, o.Idle/2); err != nil {
		return nil, err
	}
	before, began := map[string]time.Duration{}, time.Now()
	for name, pid := range pids {
		if before[name], err = measure.ProcessorTime(pid); err != nil {
			return nil, err
		}
	}
	if err := measure.Pause(ctx, o.Idle/2); err != nil {
		return nil, err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		c, err := look(name, pids[name])
		if err != nil {
			return nil, err
		}
		after, err := measure.ProcessorTime(pids[name])
		if err != nil {
			return nil, err
		}
		c.Busy = float64(after-before[name]) / float64(time.Since(began))
		r.Components = append(r.Components, c)
	}
	return floor.NewModel(dir, cp.Config())
}

// findComponents returns the pids of the components, by name.
func findComponents(dir string) (map[string]int, error) {
	statuses, err := process.Peek(filepath.Join(dir, "processes"))
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, s := range statuses {
		pids[s.ID] = s.PID
	}
	return pids, nil
}

func look(name string, pid int) (component, error) {
	c := component{Name: name}
	var err error
	if c.Memory, err = measure.MemoryOf(pid); err != nil {
		return c, err
	}
	parent, err := measure.ParentOf(pid)
	if err != nil {
		return c, err
	}
	c.Shim, err = measure.MemoryOf(parent)
	return c, err
}
