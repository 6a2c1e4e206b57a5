package local

import (
	"context"
	"errors"
	"fmt"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/snapshotfile"
)

// SaveSnapshot implements etcdsnapshot.Saver.
func (e *Engine) SaveSnapshot(ctx context.Context, of snapshot.Source, file string) (saved etcdsnapshot.Saved, err error) {
	from := e.dir(of.UID)
	applied, err := readApplied(from)
	if err != nil {
		return saved, err
	}
	if applied == nil {
		return saved, fmt.Errorf("%w: the cluster is not provisioned yet", snapshot.ErrNotRunning)
	}
	binary, err := e.opts.Binary()
	if err != nil {
		return saved, err
	}
	etcd, err := controlplane.TakeSnapshot(ctx, from, binary, file)
	if errors.Is(err, controlplane.ErrNotRunning) {
		return saved, fmt.Errorf("%w: %w", snapshot.ErrNotRunning, err)
	}
	return etcdsnapshot.Saved{Version: applied.Version, Revision: etcd.Revision, Services: etcd.Services}, err
}

// needsSnapshot reports whether the cluster of a request is to be made of a snapshot, and has not been.
func (e *Engine) needsSnapshot(r cluster.Request, was *applied) bool {
	return r.Spec.From != nil && was == nil && r.Applied == "" && !hasData(e.dir(r.UID))
}

// checkSnapshot returns the snapshot of which a cluster is to be made; nil if there is none.
func (e *Engine) checkSnapshot(r cluster.Request, wanted desire, was *applied) (*etcdsnapshot.Record, error) {
	if !e.needsSnapshot(r, was) {
		return nil, nil
	}
	return e.opts.Snapshots.ForNew(r, wanted.version)
}

// fork prepares a new cluster that is made of a snapshot.
func (e *Engine) fork(ctx context.Context, m *member, wanted desire) error {
	of := wanted.snapshot
	if of == nil {
		return nil
	}
	file := e.opts.Snapshots.File(wanted.snapshotUID)
	if _, err := snapshotfile.Inspect(ctx, file); err != nil {
		return fmt.Errorf("%w: the snapshot: %w", cluster.ErrSnapshot, err)
	}
	return controlplane.Fork(e.dir(m.uid), file, controlplane.Snapshot{Revision: of.Revision, Services: of.Services})
}
