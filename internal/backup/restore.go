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

// workspaceSuffix ends the name of the directory beside the data directory in which that is prepared.
const workspaceSuffix = ".restore"

// Restore makes a data directory from a backup. binary is keelson-kube. The directory must be empty, or not exist: it
// appears as a whole, by a rename, or not at all. What a Restore has left that was killed, the next one removes. mark is
// called with the directory, before there is anything in it.
func Restore(ctx context.Context, file, dir, binary string, mark func(dir string) error) (Manifest, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, err
	}
	if len(entries) > 0 {
		return Manifest{}, fmt.Errorf("%s is not empty: move it away, or name another directory with --data-dir", dir)
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
		return Manifest{}, fmt.Errorf("another restore is under way: %w", err)
	}
	manifest, err := restore(ctx, file, dir, filepath.Join(workspace, dataName), binary, mark)
	return manifest, errors.Join(err, os.RemoveAll(workspace), lock.Close())
}

// What is in a workspace.
const (
	lockName = "lock"
	dataName = "data"
)

// checkWorkspace refuses a directory that something else has made.
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
		return fmt.Errorf("%s is needed for the restore, and is something else (%w): move it away", workspace, err)
	}
	return nil
}

// restore prepares the data directory in another place, and renames it.
func restore(ctx context.Context, file, dir, place, binary string, mark func(dir string) error) (Manifest, error) {
	if err := os.RemoveAll(place); err != nil { // of a restore that was killed
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
	if err := os.Rename(place, dir); err != nil { // something has come there meanwhile
		return manifest, err
	}
	return manifest, atomicfile.SyncDir(filepath.Dir(dir))
}
