// Package etcdsnapshot keeps the files of ClusterSnapshots, whatever the engine of their Clusters.
package etcdsnapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
)

// A snapshot is a directory, named after the UID of its ClusterSnapshot, with these files. It appears complete, by a rename.
const (
	dataFile   = "etcd.db"
	recordFile = "snapshot.json"
	// partial is in the name of a directory that is not complete. Each attempt has its own, because a program of a manager that was
	// killed may still write to the one before.
	partial = ".partial-"
)

// Dir is a directory with snapshots.
type Dir string

// Record describes a snapshot in a Dir.
type Record struct {
	snapshot.Snapshot
	// Services is controlplane.Snapshot.Services.
	Services string `json:"services,omitempty"`
}

// step is called after each step of adding and removing a snapshot. Tests kill the process there.
var step = func(string) {}

func (d Dir) place(uid types.UID) string { return filepath.Join(string(d), string(uid)) }

// File returns the file with the data of a snapshot.
func (d Dir) File(uid types.UID) string { return filepath.Join(d.place(uid), dataFile) }

// Read returns the record of a complete snapshot; nil if there is none.
func (d Dir) Read(uid types.UID) (*Record, error) {
	place := d.place(uid)
	data, err := os.ReadFile(filepath.Join(place, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the snapshot: %w", err)
	}
	var found Record
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, fmt.Errorf("the record of the snapshot in %s is damaged (%w): delete the ClusterSnapshot", place, err)
	}
	if _, err := os.Stat(d.File(uid)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	return &found, nil
}

// add makes the directory of a snapshot. The function writes the data to a new file, which gets its place when it is durable, with the
// record that the function returns.
func (d Dir) add(uid types.UID, write func(file string) (Record, error)) (added Record, err error) {
	if err := d.removePartial(uid); err != nil {
		return added, err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return added, fmt.Errorf("create the directory of snapshots: %w", err)
	}
	place, err := os.MkdirTemp(string(d), string(uid)+partial) // mode 0700
	if err != nil {
		return added, fmt.Errorf("create the directory of the snapshot: %w", err)
	}
	if added, err = fill(place, write); err != nil {
		return added, errors.Join(err, os.RemoveAll(place))
	}
	if err := os.RemoveAll(d.place(uid)); err != nil { // what Read did not take for a snapshot
		return added, err
	}
	if err := os.Rename(place, d.place(uid)); err != nil {
		return added, err
	}
	step("renamed")
	return added, atomicfile.SyncDir(string(d))
}

// fill writes the files of a snapshot to a directory.
func fill(place string, write func(file string) (Record, error)) (added Record, err error) {
	step("begun")
	file := filepath.Join(place, dataFile)
	if added, err = write(file); err != nil {
		return added, err
	}
	if added.Size, err = syncFile(file); err != nil {
		return added, err
	}
	step("saved")
	if err := atomicfile.WriteJSON(filepath.Join(place, recordFile), added, atomicfile.Durable); err != nil {
		return added, fmt.Errorf("write the record of the snapshot: %w", err)
	}
	step("recorded")
	return added, atomicfile.SyncDir(place)
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

// removePartial removes what managers that were killed have left of a snapshot.
func (d Dir) removePartial(uid types.UID) error {
	places, err := filepath.Glob(d.place(uid) + partial + "*")
	for _, place := range places {
		err = errors.Join(err, os.RemoveAll(place))
	}
	return err
}

// RemoveSnapshot implements snapshot.Store and store.Files.
func (d Dir) RemoveSnapshot(uid types.UID) error {
	place := d.place(uid)
	// First the record: without it, the rest is no snapshot.
	if err := os.Remove(filepath.Join(place, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	step("unrecorded")
	return errors.Join(os.RemoveAll(place), d.removePartial(uid))
}

// OpenSnapshot implements store.Files. The record is a JSON document.
func (d Dir) OpenSnapshot(uid types.UID) ([]byte, *os.File, error) {
	if found, err := d.Read(uid); err != nil || found == nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(filepath.Join(d.place(uid), recordFile))
	if err != nil {
		return nil, nil, err
	}
	data, err := os.Open(d.File(uid))
	if err != nil {
		return nil, nil, err
	}
	return content, data, nil
}

// AddSnapshot implements store.Files.
func (d Dir) AddSnapshot(uid types.UID, content []byte, write func(io.Writer) error) error {
	var record Record
	if err := json.Unmarshal(content, &record); err != nil {
		return fmt.Errorf("the record of the snapshot is damaged: %w", err)
	}
	_, err := d.add(uid, func(path string) (Record, error) { return record, WriteFile(path, write) })
	return err
}

// WriteFile creates a file, mode 0600, with what a function writes.
func WriteFile(path string, write func(io.Writer) error) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// Save calls add for each file of the complete snapshots, as local.Save does.
func (d Dir) Save(add func(name, path string) error) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the snapshots: %w", err)
	}
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		if found, err := d.Read(uid); err != nil || found == nil || strings.Contains(entry.Name(), partial) {
			continue // it is being taken or removed, or is damaged
		}
		for _, name := range []string{dataFile, recordFile} {
			if err := add(entry.Name()+"/"+name, filepath.Join(d.place(uid), name)); err != nil {
				return fmt.Errorf("the snapshot in %s: %w", d.place(uid), err)
			}
		}
	}
	return nil
}
