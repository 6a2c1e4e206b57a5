package system

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestDisksHaveNames(t *testing.T) {
	dir := t.TempDir()
	links, sys := filepath.Join(dir, "by-id"), filepath.Join(dir, "block")
	file := func(content string, path ...string) string {
		t.Helper()
		name := filepath.Join(append([]string{sys}, path...)...)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(name)
	}
	disk := file("data\n", "vdb", "serial")
	part := file("1\n", "vdb", "vdb1", "partition")
	other := file("../../etc\n", "vdc", "serial")
	none := file("0\n", "sr0", "ro")
	for _, directory := range []string{disk, part, other, none, disk} {
		if err := linkDisk(directory, links); err != nil {
			t.Fatal(err)
		}
	}
	names := func() []string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(links, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range found {
			target, err := os.Readlink(name)
			if err != nil {
				t.Fatal(err)
			}
			found[i] = filepath.Base(name) + " " + target
		}
		return found
	}
	if got := names(); !slices.Equal(got, []string{"virtio-data ../../vdb", "virtio-data-part1 ../../vdb1"}) {
		t.Errorf("links are %q", got)
	}
	// The same disk has come back under another name before the first one was noticed to be gone.
	moved := file("data\n", "vdd", "serial")
	if err := linkDisk(moved, links); err != nil {
		t.Fatal(err)
	}
	for _, directory := range []string{part, disk} {
		if err := unlinkDisk(directory, links); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(); !slices.Equal(got, []string{"virtio-data ../../vdd"}) {
		t.Errorf("links are %q", got)
	}
}
