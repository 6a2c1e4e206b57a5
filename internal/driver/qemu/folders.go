package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Machines, disks and snapshots have a folder each, whose name is their UID, with a record of them.

// trashPrefix is the prefix of a folder that is being removed.
const trashPrefix = ".removed-"

// openFolders calls open with each folder of a directory, and logs its errors. It removes the rest of those that were being removed.
func (d *Driver) openFolders(directory, kind string, open func(dir string) error) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("find %ss: %w", kind, err)
	}
	for _, entry := range entries {
		dir := filepath.Join(directory, entry.Name())
		if strings.HasPrefix(entry.Name(), trashPrefix) {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove the remains of a %s: %w", kind, err)
			}
			continue
		}
		if err := open(dir); err != nil {
			d.options.Log.Error(err, "Could not read a "+kind, "folder", dir)
		}
	}
	return nil
}

// readRecord reads the record in a folder. uid points to the UID in it.
func readRecord(dir, file, kind string, record any, uid *types.UID) error {
	path := filepath.Join(dir, file)
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, record); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if string(*uid) != filepath.Base(dir) {
		return fmt.Errorf("%s belongs to %s %q", path, kind, *uid)
	}
	return nil
}

// removeFolder removes a folder atomically: a crash leaves the rest under another name, and the next Open removes it.
func removeFolder(dir string) error {
	trash := filepath.Join(filepath.Dir(dir), trashPrefix+filepath.Base(dir))
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove a folder: %w", err)
	}
	err := os.Rename(dir, trash)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove a folder: %w", err)
	}
	step("folder renamed")
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove a folder: %w", err)
	}
	return nil
}
