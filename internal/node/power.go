package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
