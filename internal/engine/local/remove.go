package local

import (
	"context"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Delete implements cluster.Engine.
func (e *Engine) Delete(_ context.Context, r cluster.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.attend(r.UID, r.Name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var under <-chan struct{}
	if m.done != nil {
		if m.op.Delete {
			return nil
		}
		m.cancel()
		under = m.done
	}
	e.begin(m, true, "", func(ctx context.Context) error { return e.remove(ctx, m, under) })
	return nil
}

// removalTimeout limits a removal. Killing processes takes milliseconds.
const removalTimeout = time.Minute

// remove kills all processes of a cluster and deletes its data.
func (e *Engine) remove(ctx context.Context, m *member, under <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	if err := waitFor(ctx, under); err != nil {
		return err
	}
	m.closeIdleListener()
	if cp := m.release(); cp != nil {
		atOnce, cancel := context.WithCancel(ctx)
		cancel()
		if err := cp.Stop(atOnce); err != nil {
			return err
		}
	}
	if err := controlplane.Destroy(ctx, e.dir(m.uid), e.opts.Log.WithValues("Cluster", m.name)); err != nil {
		return err
	}
	e.sweepLayers(m)
	return nil
}

// sweepLayers deletes the layers of images that only the nodes of a removed cluster used. If that fails, the next real node that is started
// deletes them.
func (e *Engine) sweepLayers(m *member) {
	if e.opts.Machine == nil || e.opts.Layers == "" {
		return
	}
	machine, err := e.opts.Machine()
	if err != nil {
		return // no real nodes are allowed or possible any more
	}
	if err := machine.SweepLayers(e.opts.Layers); err != nil {
		e.opts.Log.Error(err, "Could not delete layers of images that no node uses", "Cluster", m.name)
	}
}

// Abandon implements cluster.Engine.
func (e *Engine) Abandon(_ context.Context, r cluster.Request) error {
	e.mu.Lock()
	m := e.clusters[r.UID]
	delete(e.clusters, r.UID)
	e.mu.Unlock()
	if m == nil {
		return nil
	}
	m.closeIdleListener()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cancel != nil {
		m.cancel()
	}
	cp := m.cp
	m.cp, m.present = nil, ""
	if cp == nil {
		return nil
	}
	return cp.Detach()
}
