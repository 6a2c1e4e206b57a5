// Package atomicfile replaces files so that neither a crash nor a power cut leaves half of one.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// sync makes what was written to a file, or the names in a directory, durable. Tests replace it.
var sync = (*os.File).Sync

// Write replaces the file at path, mode 0600. A reader sees the old content or the new. When Write has returned nil, the new
// content survives a power cut. Calls for the same path must not overlap: they share the temporary file path + ".new".
func Write(path string, data []byte) error {
	temporary := path + ".new"
	err := writeSynced(temporary, data)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary) // the first error is the one to report
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = sync(file)
	}
	return errors.Join(err, file.Close())
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it was only read
	return sync(dir)
}
