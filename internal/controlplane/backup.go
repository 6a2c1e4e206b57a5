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

// snapshotName is the file in a backup that etcd's data is restored from.
const snapshotName = "etcd.db"

// revisionBump is how far the revision of a restored etcd is ahead of that of its snapshot, so that clients that have
// seen later revisions do not take other objects for those.
const revisionBump = "1000000000"

// Save calls add for each file that restores the control plane of a data directory, with its slash-separated name below
// the directory and where to read it: the port, certificates and keys, and etcd's data. It saves a snapshot of an etcd
// that runs, into scratch, and the files of one that does not. The components need not stop.
//
// The error is a *process.LockedError when etcd does not run but a program looks after it: it may be starting.
func Save(ctx context.Context, path, binary, scratch string, add func(name, path string) error) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := layout(abs)
	if _, err := loadState(dir); err != nil { // a backup of a damaged one is of no use
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
	components, err := inspectComponents(dir)
	if err != nil {
		return err
	}
	runs := slices.ContainsFunc(components, func(c ComponentReport) bool {
		return c.Name == nameEtcd && c.State == string(process.Running)
	})
	if runs {
		snapshot := filepath.Join(scratch, snapshotName)
		if err := etcdctl(ctx, binary, dir, "snapshot", "save", snapshot); err != nil {
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

// Restore turns a directory with the files that Save has added into a data directory. It verifies the hash of etcd's
// snapshot.
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
	err = runTool(ctx, binary, path, "etcdutl", "snapshot", "restore", snapshot, "--data-dir="+dir.etcdData(),
		"--name="+memberName, "--initial-cluster="+initialCluster, "--initial-advertise-peer-urls=unix://"+peerSocket,
		"--bump-revision="+revisionBump, "--mark-compacted")
	if err != nil {
		return fmt.Errorf("restore etcd's data: %w", err)
	}
	if err := closeFiles(dir.etcdData()); err != nil {
		return err
	}
	return os.Remove(snapshot)
}

// closeFiles closes all files in a directory to others: etcdutl leaves that to its umask.
func closeFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.Chmod(path, 0o600)
	})
}
