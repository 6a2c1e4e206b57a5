package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/sandbox"
)

// A shell instead of qemu-img prints its limits: in KiB, seconds, and blocks of 512 bytes.
func TestImageToolHasLimits(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, 3<<30); err != nil {
		t.Fatal(err)
	}
	spec := &sandbox.Spec{}
	spec.Open(disk, sandbox.ReadWrite)
	out, err := runImageTool(t.Context(), "/bin/sh", spec, "-c", "ulimit -v; ulimit -t; ulimit -f")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1048576", "60", "8388608"}
	if diff := cmp.Diff(want, strings.Fields(string(out))); diff != "" {
		t.Errorf("memory, time and file size (-want +got):\n%s", diff)
	}
}
