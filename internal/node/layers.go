package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// LayersDir returns the folder in a directory in which real nodes share layers of images.
func LayersDir(dir string) string { return filepath.Join(dir, "layers") }

// SweepLayers deletes the layers that no node uses any more. A node does the same when it starts, and when it has deleted images. It does
// nothing if no node of this machine has shared layers.
func (m Machine) SweepLayers(layers string) error {
	if _, err := os.Stat(layers); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	output, err := exec.Command(filepath.Join(m.Programs, Program), "sweep-layers", layers).CombinedOutput()
	if err != nil {
		return fmt.Errorf("delete unused layers of images in %s: %w: %s", layers, err, bytes.TrimSpace(output))
	}
	return nil
}
