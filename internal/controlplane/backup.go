package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/keelson-dev/keelson/internal/process"
)

// snapshotName is the file name of etcd's snapshot in a backup.
const snapshotName = "etcd.db"

// revisionBump is added to the revision of a restored etcd, so that clients do not confuse its revisions with those
// after the snapshot.
const revisionBump = "1000000000"

// Save calls add for each file of a backup of the control plane in a data directory, with its slash-separated path in
// the directory and the path to read it from: the port, certificates and keys, and etcd's data. From a running etcd it
// saves a snapshot into scratch, otherwise etcd's files. The components keep running.
//
// The error is a *process.LockedError if etcd does not run but another program manages it: it may be starting.
func Save(ctx context.Context, path, binary, scratch string, add func(name, path string) error) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := layout(abs)
	if _, err := loadState(dir); err != nil { // a backup of a damaged one is useless
		return err
	}
	if err := saveEtcd(ctx, dir, binary, scratch, add); err != nil {
		return fmt.Errorf("save etcd's data: %w", err)
	}
	keys, err := os.ReadDir(dir.path("pki"))
	if err != nil {
		return err
	}
	for _, entry := range keys {
		if slices.Contains([]string{".crt", ".key"}, filepath.Ext(entry.Name())) { // the others are created again
			if err := add("pki/"+entry.Name(), dir.pki(entry.Name())); err != nil {
				return err
			}
		}
	}
	return add(filepath.Base(dir.stateFile()), dir.stateFile())
}

// saveEtcd saves the data of etcd.
func saveEtcd(ctx context.Context, dir layout, binary, scratch string, add func(name, path string) error) error {
	runs, err := etcdRuns(dir)
	if err != nil {
		return err
	}
	if runs {
		snapshot := filepath.Join(scratch, snapshotName)
		if err := saveSnapshot(ctx, binary, dir, snapshot); err != nil {
			return err
		}
		return errors.Join(add(snapshotName, snapshot), os.Remove(snapshot))
	}
	procs, err := process.Open(dir.processes()) // so that no other program starts it
	if err != nil {
		return err
	}
	err = filepath.WalkDir(dir.etcdData(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(string(dir), path)
		if err != nil {
			return err
		}
		return add(filepath.ToSlash(name), path)
	})
	return errors.Join(err, procs.Close())
}

// Restore converts a directory with the files of Save to a data directory. It verifies the hash of etcd's snapshot.
func Restore(ctx context.Context, path, binary string) error {
	dir := layout(path)
	s, err := loadState(dir)
	if err != nil {
		return err
	}
	s.Ephemeral, s.Commands = false, nil
	if err := saveState(dir, s); err != nil {
		return err
	}
	snapshot := dir.path(snapshotName)
	if _, err := os.Stat(snapshot); errors.Is(err, fs.ErrNotExist) {
		return nil // etcd did not run when it was saved
	}
	if err := restoreEtcd(ctx, binary, path, snapshot, dir.etcdData(), revisionBump); err != nil {
		return err
	}
	return os.Remove(snapshot)
}

// closeFiles removes the permissions of other users for all files in a directory, which etcdutl leaves to its
// umask.
func closeFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Chmod(path, 0o600)
	})
}
