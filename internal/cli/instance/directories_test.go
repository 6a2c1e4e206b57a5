package instance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirectories(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("TMPDIR", home)
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	check := func(want ...Directory) {
		t.Helper()
		got, err := Directories()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("err: %v (-want +got):\n%s", err, diff)
		}
	}
	check()

	standard := filepath.Join(home, ".local", "share", "keelson")
	first, second := filepath.Join(home, "first"), filepath.Join(home, "second")
	for _, dir := range []string{standard, first, first, second} {
		secure(t, dir)
	}
	check(Directory{Path: standard}, Directory{Path: first}, Directory{Path: second})

	if err := Remove(first); err != nil {
		t.Fatal(err)
	}
	check(Directory{Path: standard}, Directory{Path: second})

	secure(t, second) // drops the link to the first
	if links, err := os.ReadDir(filepath.Join(home, ".local", "state", "keelson", "directories")); err != nil || len(links) != 1 {
		t.Errorf("links: %v, %v", links, err)
	}
	if err := os.RemoveAll(filepath.Join(home, ".local", "state")); err != nil {
		t.Fatal(err)
	}
	check(Directory{Path: standard})
}
