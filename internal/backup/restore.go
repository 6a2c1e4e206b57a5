package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// workspaceSuffix is the suffix of the workspace next to the data directory, in which a restore
// prepares it.
const workspaceSuffix = ".restore"

// Restore creates a data directory from a backup. binary is keelson-kube. The directory must be
// empty or missing: it appears complete, by a rename, or not at all. A later Restore removes what a
// killed one left behind. mark is called with the directory while it is still empty.
func Restore(ctx context.Context, file, dir, binary string, mark func(dir string) error) (Manifest, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, err
	}
	if len(entries) > 0 {
		return Manifest{}, fmt.Errorf("%s is not empty: move it away, or choose another directory with --data-dir", dir)
	}
	workspace := dir + workspaceSuffix
	if err := checkWorkspace(workspace); err != nil {
		return Manifest{}, err
	}
	if err := os.MkdirAll(workspace, 0o700); err != nil {
		return Manifest{}, err
	}
	lock, err := process.Open(filepath.Join(workspace, lockName))
	if err != nil {
		return Manifest{}, fmt.Errorf("another restore is running: %w", err)
	}
	manifest, err := restore(ctx, file, dir, filepath.Join(workspace, dataName), binary, mark)
	return manifest, errors.Join(err, os.RemoveAll(workspace), lock.Close())
}

// Contents of a workspace.
const (
	lockName = "lock"
	dataName = "data"
)

// checkWorkspace rejects a directory that no restore has created.
func checkWorkspace(workspace string) error {
	entries, err := os.ReadDir(workspace)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.Name() != lockName && entry.Name() != dataName {
			err = fmt.Errorf("it has %s", entry.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("%s is needed for the restore, but was not created by one (%w): move it away", workspace, err)
	}
	return nil
}

// restore prepares the data directory in a workspace and renames it.
func restore(ctx context.Context, file, dir, place, binary string, mark func(dir string) error) (Manifest, error) {
	if err := os.RemoveAll(place); err != nil { // left by a killed restore
		return Manifest{}, err
	}
	if err := mark(place); err != nil {
		return Manifest{}, err
	}
	manifest, err := extract(ctx, file, place)
	if err != nil {
		return manifest, err
	}
	if err := controlplane.Restore(ctx, place, binary); err != nil {
		return manifest, err
	}
	clusters, err := os.ReadDir(manager.ClusterDir(place))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return manifest, err
	}
	for _, entry := range clusters {
		if err := controlplane.Restore(ctx, filepath.Join(manager.ClusterDir(place), entry.Name()), binary); err != nil {
			return manifest, fmt.Errorf("the cluster %s: %w", entry.Name(), err)
		}
	}
	if err := os.Rename(place, dir); err != nil { // another process has created it meanwhile
		return manifest, err
	}
	return manifest, atomicfile.SyncDir(filepath.Dir(dir))
}
