package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// RemoveData deletes what a node without root keeps in its directory: its user does not own all of the files. It does nothing if root ran
// the node, or if the settings of the node are gone. The node must not run any more.
func RemoveData(dir string) error {
	file := Settings{Dir: dir}.File()
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var s Settings
	if json.Unmarshal(data, &s) != nil || s.Rootless == nil {
		return nil // who deletes the rest finds out whether that is possible
	}
	program := filepath.Join(s.Programs, Program)
	output, err := exec.Command(program, "remove", file).CombinedOutput()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the files of the node in %s: %s is missing (build it with `make node`)", dir, program)
	}
	if err != nil {
		return fmt.Errorf("remove the files of the node in %s: %w: %s", dir, err, bytes.TrimSpace(output))
	}
	return nil
}
