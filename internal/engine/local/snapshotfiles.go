package local

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
)

// OpenSnapshot implements store.Files. The record is a JSON document.
func (e *Engine) OpenSnapshot(uid types.UID) ([]byte, *os.File, error) {
	dir := e.snapshotDir(uid)
	if found, err := readRecord(dir); err != nil || found == nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(filepath.Join(dir, snapshotRecord))
	if err != nil {
		return nil, nil, err
	}
	data, err := os.Open(filepath.Join(dir, snapshotData))
	if err != nil {
		return nil, nil, err
	}
	return content, data, nil
}

// AddSnapshot implements store.Files.
func (e *Engine) AddSnapshot(uid types.UID, content []byte, write func(io.Writer) error) error {
	var added record
	if err := json.Unmarshal(content, &added); err != nil {
		return fmt.Errorf("the record of the snapshot is damaged: %w", err)
	}
	return e.place(uid, func(place string) error {
		step("begun")
		data, err := os.OpenFile(filepath.Join(place, snapshotData), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		err = write(data)
		if err == nil {
			err = data.Sync()
		}
		if err := errors.Join(err, data.Close()); err != nil {
			return err
		}
		step("saved")
		if err := atomicfile.WriteJSON(filepath.Join(place, snapshotRecord), added, atomicfile.Durable); err != nil {
			return fmt.Errorf("write the record of the snapshot: %w", err)
		}
		step("recorded")
		return nil
	})
}

// SaveSnapshots calls add for each file of the complete snapshots in the directory of an engine, as Save does.
func SaveSnapshots(dir string, add func(name, path string) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the snapshots: %w", err)
	}
	for _, entry := range entries {
		own := filepath.Join(dir, entry.Name())
		if found, err := readRecord(own); err != nil || found == nil || strings.Contains(entry.Name(), snapshotPartial) {
			continue // it is being taken or removed, or is damaged
		}
		for _, name := range []string{snapshotData, snapshotRecord} {
			if err := add(entry.Name()+"/"+name, filepath.Join(own, name)); err != nil {
				return fmt.Errorf("the snapshot in %s: %w", own, err)
			}
		}
	}
	return nil
}
