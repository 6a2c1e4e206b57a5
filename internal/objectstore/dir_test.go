package objectstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// files returns the modes of all files and directories below one.
func files(t *testing.T, root string) map[string]fs.FileMode {
	t.Helper()
	all := map[string]fs.FileMode{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			all[strings.TrimPrefix(path, root+"/")] = info.Mode().Perm()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func openDir(t *testing.T, root string) Store {
	t.Helper()
	s, err := Options{Location: root}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What writes leave, also those that fail and those of a program that was killed.
func TestFilesOfDirectory(t *testing.T) {
	root := t.TempDir()
	s := openDir(t, root)
	if err := put(t.Context(), s, "demo/one/data", "first"); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "demo/one/data", failing(4096), 8192); !errors.Is(err, errSource) {
		t.Errorf("a write that fails: %v", err)
	}
	want := map[string]fs.FileMode{"demo": 0o700, "demo/one": 0o700, "demo/one/data": 0o600}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("after a write that failed (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(root, "demo/one/data"+partialSuffix+"1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, "demo/one/data", "third"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("after the next write (-want +got):\n%s", diff)
	}
	if err := put(t.Context(), s, "demo/two/data", "other"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "demo/one/data"); err != nil {
		t.Fatal(err)
	}
	want = map[string]fs.FileMode{"demo": 0o700, "demo/two": 0o700, "demo/two/data": 0o600}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("after the deletion (-want +got):\n%s", diff)
	}
}

// A file system that is not mounted is an error, not an empty store: nothing is written beside it, and nothing counts as deleted.
func TestDirectoryIsMissing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "missing")
	s := openDir(t, root)
	_, err := s.Get(t.Context(), "a/data")
	for what, err := range map[string]error{"read": err, "write": put(t.Context(), s, "a/data", "x"), "delete": s.Delete(t.Context(), "a/data")} {
		if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "there is no directory "+root) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}
