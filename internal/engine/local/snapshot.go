package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// A snapshot is a directory, named after the UID of its ClusterSnapshot, with these files. It appears complete, by a rename.
const (
	snapshotData   = "etcd.db"
	snapshotRecord = "snapshot.json"
	// snapshotPartial is in the name of a directory that is not complete. Each attempt has its own, because etcdctl of a manager that
	// was killed may still write to the one before.
	snapshotPartial = ".partial-"
)

// record is the content of snapshotRecord.
type record struct {
	snapshot.Snapshot
	// Services is controlplane.Snapshot.Services.
	Services string `json:"services,omitempty"`
}

// step is called after each step of taking and removing a snapshot. Tests kill the process there.
var step = func(string) {}

func (e *Engine) snapshotDir(uid types.UID) string {
	return filepath.Join(e.opts.Snapshots, string(uid))
}

// FindSnapshot implements snapshot.Store.
func (e *Engine) FindSnapshot(uid types.UID) (*snapshot.Snapshot, error) {
	found, err := readRecord(e.snapshotDir(uid))
	if err != nil || found == nil {
		return nil, err
	}
	return &found.Snapshot, nil
}

// readRecord returns the record of a complete snapshot; nil if there is none.
func readRecord(dir string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(dir, snapshotRecord))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the snapshot: %w", err)
	}
	var found record
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, fmt.Errorf("the record of the snapshot in %s is damaged (%w): delete the ClusterSnapshot", dir, err)
	}
	if _, err := os.Stat(filepath.Join(dir, snapshotData)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return &found, nil
}

// TakeSnapshot implements snapshot.Store.
func (e *Engine) TakeSnapshot(ctx context.Context, uid types.UID, of snapshot.Source) (*snapshot.Snapshot, error) {
	from := e.dir(of.UID)
	applied, err := readApplied(from)
	if err != nil {
		return nil, err
	}
	if applied == nil {
		return nil, fmt.Errorf("%w: the cluster is not provisioned yet", snapshot.ErrNotRunning)
	}
	binary, err := e.opts.Binary()
	if err != nil {
		return nil, err
	}
	taken := record{Snapshot: snapshot.Snapshot{
		Cluster: of.Name, ClusterUID: of.UID, Version: applied.Version, TakenAt: e.opts.Clock.Now().UTC(),
	}}
	err = e.place(uid, func(place string) error {
		taken, err = e.takeInto(ctx, place, binary, from, taken)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &taken.Snapshot, nil
}

// place makes the directory of a snapshot. The function writes the files to another one, which gets the name when they are durable.
func (e *Engine) place(uid types.UID, write func(place string) error) error {
	if err := e.removePartial(uid); err != nil {
		return err
	}
	if err := os.MkdirAll(e.opts.Snapshots, 0o700); err != nil {
		return fmt.Errorf("create the directory of snapshots: %w", err)
	}
	place, err := os.MkdirTemp(e.opts.Snapshots, string(uid)+snapshotPartial) // mode 0700
	if err != nil {
		return fmt.Errorf("create the directory of the snapshot: %w", err)
	}
	if err := write(place); err != nil {
		return errors.Join(err, os.RemoveAll(place))
	}
	if err := os.RemoveAll(e.snapshotDir(uid)); err != nil { // what FindSnapshot did not take for a snapshot
		return err
	}
	if err := os.Rename(place, e.snapshotDir(uid)); err != nil {
		return err
	}
	step("renamed")
	return atomicfile.SyncDir(e.opts.Snapshots)
}

// removePartial removes what managers that were killed have left of a snapshot.
func (e *Engine) removePartial(uid types.UID) error {
	places, err := filepath.Glob(e.snapshotDir(uid) + snapshotPartial + "*")
	for _, place := range places {
		err = errors.Join(err, os.RemoveAll(place))
	}
	return err
}

// takeInto writes the files of a snapshot of the cluster in a data directory.
func (e *Engine) takeInto(ctx context.Context, place, binary, from string, taken record) (record, error) {
	step("begun")
	data := filepath.Join(place, snapshotData)
	etcd, err := controlplane.TakeSnapshot(ctx, from, binary, data)
	if errors.Is(err, controlplane.ErrNotRunning) {
		return taken, fmt.Errorf("%w: %w", snapshot.ErrNotRunning, err)
	}
	if err != nil {
		return taken, err
	}
	size, err := syncFile(data)
	if err != nil {
		return taken, err
	}
	step("saved")
	taken.Revision, taken.Services, taken.Size = etcd.Revision, etcd.Services, size
	if err := atomicfile.WriteJSON(filepath.Join(place, snapshotRecord), taken, atomicfile.Durable); err != nil {
		return taken, fmt.Errorf("write the record of the snapshot: %w", err)
	}
	step("recorded")
	return taken, atomicfile.SyncDir(place)
}

// syncFile writes the data of a file to the disk, and returns its size.
func syncFile(path string) (int64, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, errors.Join(err, file.Close())
	}
	return info.Size(), errors.Join(file.Sync(), file.Close())
}

// RemoveSnapshot implements snapshot.Store.
func (e *Engine) RemoveSnapshot(uid types.UID) error {
	dir := e.snapshotDir(uid)
	// First the record: without it, the rest is no snapshot.
	if err := os.Remove(filepath.Join(dir, snapshotRecord)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	step("unrecorded")
	return errors.Join(os.RemoveAll(dir), e.removePartial(uid))
}

// needsSnapshot reports whether the cluster of a request is to be made of a snapshot, and has not been.
func (e *Engine) needsSnapshot(r cluster.Request, was *applied) bool {
	return r.Spec.From != nil && was == nil && r.Applied == "" && !hasData(e.dir(r.UID))
}

// checkSnapshot returns the snapshot of which a cluster is to be made; nil if there is none.
func (e *Engine) checkSnapshot(r cluster.Request, wanted desire, was *applied) (*record, error) {
	if !e.needsSnapshot(r, was) {
		return nil, nil
	}
	if r.Snapshot.Err != nil {
		return nil, r.Snapshot.Err
	}
	found, err := readRecord(e.snapshotDir(r.Snapshot.UID))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrSnapshot, err)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: this host has no files of the ClusterSnapshot %s", cluster.ErrSnapshot, r.Spec.From.Snapshot)
	}
	if err := cluster.CheckUpgrade(found.Version, wanted.version); err != nil {
		return nil, fmt.Errorf("the ClusterSnapshot %s: %w", r.Spec.From.Snapshot, err)
	}
	return found, nil
}

// fork makes the data of a new cluster of a snapshot.
func (e *Engine) fork(ctx context.Context, m *member, wanted desire) error {
	of := wanted.snapshot
	if of == nil {
		return nil
	}
	m.describe("Restoring the snapshot")
	file := filepath.Join(e.snapshotDir(wanted.snapshotUID), snapshotData)
	return controlplane.Fork(ctx, e.dir(m.uid), wanted.binary, file, controlplane.Snapshot{Revision: of.Revision, Services: of.Services})
}
