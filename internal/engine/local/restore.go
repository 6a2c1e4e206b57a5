package local

import (
	"context"
	"fmt"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
)

// isRestored reports whether there is nothing to restore, or whether that was done.
func (d desire) isRestored(dir string) bool {
	return d.restore == nil || controlplane.Restored(dir) == d.restore.Token
}

// isPresent reports whether the engine supervises a control plane with the desired state.
func (m *member) isPresent(wanted desire) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present == wanted.key()
}

// restore replaces the data of a cluster as desired, once, and leaves its processes stopped. If it fails, the data is the one before.
func (e *Engine) restore(ctx context.Context, m *member, wanted desire) error {
	dir := e.dir(m.uid)
	if wanted.isRestored(dir) {
		if err := controlplane.RemoveRestores(dir); err != nil { // of a manager that was killed
			e.opts.Log.Error(err, "Failed to delete the files of an earlier restore; it is tried again", "Cluster", m.name)
		}
		return nil
	}
	of, err := e.checkRestore(m, wanted)
	if err != nil {
		return err
	}
	m.describe("Restoring the snapshot")
	return controlplane.RestoreInPlace(ctx, dir, controlplane.InPlace{
		Binary: wanted.binary, File: e.opts.Snapshots.File(wanted.restore.UID),
		Revision: of.Revision, Token: wanted.restore.Token,
		Stop: func(ctx context.Context) error {
			m.describe("Stopping the cluster, to replace its data")
			ctx, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			defer e.changed(m.name) // no control plane tells that its processes have ended
			return e.stop(ctx, m)
		},
	})
}

// checkRestore returns the record of the snapshot, unless the cluster cannot be restored from it.
func (e *Engine) checkRestore(m *member, wanted desire) (*etcdsnapshot.Record, error) {
	if !hasData(e.dir(m.uid)) {
		return nil, fmt.Errorf("%w: the cluster has no data yet", cluster.ErrSnapshot)
	}
	return e.opts.Snapshots.ForRestore(wanted.restore, m.uid, wanted.version)
}
