package inside

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPrepareHierarchies(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"cpu,cpuacct", "memory", "unified"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("cpu,cpuacct", filepath.Join(root, "cpu")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be there already
		if err := prepareHierarchies(root, "keelson-0badcafe"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := filepath.Glob(filepath.Join(root, "*", "keelson-0badcafe"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		filepath.Join(root, "cpu", "keelson-0badcafe"), // the same one as the next
		filepath.Join(root, "cpu,cpuacct", "keelson-0badcafe"), filepath.Join(root, "memory", "keelson-0badcafe"),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// In a file system that is none of cgroups the last word of each file stays.
func TestPrepareUnified(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := prepareUnified(root, "keelson-0badcafe"); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{root, filepath.Join(root, "keelson-0badcafe")} {
		if got, err := os.ReadFile(filepath.Join(folder, "cgroup.subtree_control")); err != nil || string(got) != "+pids" {
			t.Errorf("%s: %q, %v", folder, got, err)
		}
	}
	if err := prepareUnified(t.TempDir(), "keelson-0badcafe"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no hierarchy of version 2: %v", err)
	}
}
