package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

// A node that is powered off has a file in its directory, and the supervisor does not start it until the file is gone.

func powerFile(dir string) string { return filepath.Join(dir, "powered-off") }

// PowerOff has the node with this directory not started again. It does not end a node that runs.
func PowerOff(dir string) error { return os.WriteFile(powerFile(dir), nil, 0o600) }

// PowerOn allows the node with this directory to be started.
func PowerOn(dir string) error {
	if err := os.Remove(powerFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// IsPoweredOff reports whether the node with this directory is not to be started.
func IsPoweredOff(dir string) bool {
	_, err := os.Stat(powerFile(dir))
	return err == nil
}

// A node that is to be removed has a file beside its directory, and the supervisor deletes the file when nothing else of the node is left.

func removalFile(dir string) string { return dir + ".remove" }

// RequestRemoval has the node with this directory removed.
func RequestRemoval(dir string) error {
	return atomicfile.Write(removalFile(dir), nil, atomicfile.Durable)
}

// ConcludeRemoval says that nothing is left of the node with this directory.
func ConcludeRemoval(dir string) error {
	if err := os.Remove(removalFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// IsBeingRemoved reports whether the node with this directory is to be removed, and something is left of it.
func IsBeingRemoved(dir string) bool {
	_, err := os.Stat(removalFile(dir))
	return err == nil
}
