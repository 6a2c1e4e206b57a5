// Package atomicfile replaces small files as a whole. It imports nothing but the standard library's file functions: the shim
// of package process uses it, and has to stay small.
package atomicfile

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Durability says what the new content of a file survives.
type Durability bool

const (
	// Volatile content survives a crash of this program. After a power cut the file may be the old one, empty or damaged.
	// It is for what means nothing after a reboot, or can be found out again.
	Volatile Durability = false
	// Durable content also survives a power cut, as does its name: the file and its directory are synced.
	Durable Durability = true
)

// Suffix ends the name of the temporary file beside the file that it is to replace.
const Suffix = ".tmp"

// Fault is called before each operation on the disk, with its name (create, write, sync, rename, syncdir) and the path. An
// error makes the operation fail. Tests replace it.
var Fault = func(operation, path string) error { return nil }

// Write replaces the file at path, mode 0600. A reader sees the old content or the new, as does the next start of a program
// that was killed in between. If Write fails before the new content has its name, nothing of it is left. The error names the
// file. Calls for the same path must not overlap: they share the temporary file.
func Write(path string, data []byte, durability Durability) error {
	temporary := path + Suffix
	err := writeTemporary(temporary, data, durability)
	if err == nil {
		err = rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // the first error is the one to report
		return err
	}
	if durability == Durable {
		return SyncDir(filepath.Dir(path))
	}
	return nil
}

// WriteJSON replaces the file at path by v as JSON, as Write does.
func WriteJSON(path string, v any, durability Durability) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return Write(path, append(data, '\n'), durability)
}

// Reserve sets aside space for the next Write to path, which succeeds on a full disk if it has no more than size bytes and
// the file system overwrites in place.
func Reserve(path string, size int) error {
	return writeTemporary(path+Suffix, make([]byte, size), Volatile)
}

// writeTemporary overwrites a file that is there already in place, so that its space is used again.
func writeTemporary(path string, data []byte, durability Durability) error {
	if err := Fault("create", path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = Fault("write", path)
	if err == nil {
		_, err = file.Write(data)
	}
	if err == nil {
		err = file.Truncate(int64(len(data)))
	}
	if err == nil && durability == Durable {
		if err = Fault("sync", path); err == nil {
			err = file.Sync()
		}
	}
	return errors.Join(err, file.Close())
}

func rename(from, to string) error {
	if err := Fault("rename", to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Place gives the complete file at part the name path, durably: after a power cut, there is all of it, or what was there before. It may be
// repeated: a file that has its name already is no error.
func Place(part, path string) error {
	err := Fault("sync", part)
	if err == nil {
		err = SyncFile(part)
	}
	if err == nil {
		err = rename(part, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Lstat(path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncFile makes the content of a file durable.
func SyncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// SyncDir makes the names in a directory durable: files that were made, renamed or removed.
func SyncDir(path string) error {
	if err := Fault("syncdir", path); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it was only read
	return dir.Sync()
}
