package debian

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// output runs a build with this environment, and returns its progress.
func output(t *testing.T, path string, env map[string]string) (string, error) {
	t.Helper()
	for name, value := range env {
		t.Setenv(name, value)
	}
	var progress bytes.Buffer
	err := Build(t.Context(), path, "trixie", nil, &progress)
	return progress.String(), err
}

// What is missing is named, with the command that installs it. The build fails before it writes anything.
func TestMissingProgramsAreNamed(t *testing.T) {
	bash, err := filepath.EvalSymlinks("/bin/bash")
	if err != nil {
		t.Skip("SKIP: no bash")
	}
	bin := t.TempDir()
	for name, target := range map[string]string{"bash": bash, "uname": "/bin/uname", "cat": "/bin/cat", "id": "/usr/bin/id"} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "image.qcow2")
	_, err = output(t, path, map[string]string{"PATH": bin})
	if err == nil || !strings.Contains(err.Error(), "missing: mmdebstrap ") || !strings.Contains(err.Error(), "sudo apt-get install mmdebstrap ") {
		t.Errorf("error: %v", err)
	}
	// An existing image needs no programs.
	existing := filepath.Join(t.TempDir(), "existing.qcow2")
	if err := os.WriteFile(existing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if progress, err := output(t, existing, nil); err != nil || progress != existing+" exists\n" {
		t.Errorf("an existing image: %q, %v", progress, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
