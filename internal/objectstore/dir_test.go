package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
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

func put(ctx context.Context, s Store, name, content string) error {
	return s.Put(ctx, name, strings.NewReader(content), int64(len(content)))
}

// get returns the content of an object.
func get(t *testing.T, s Store, name string) string {
	t.Helper()
	object, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(object)
	if err := errors.Join(err, object.Close()); err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// failing reads half of an object, then fails.
func failing() io.Reader {
	return io.MultiReader(bytes.NewReader(make([]byte, 4096)), iotestErr{})
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestDirectory(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "demo/one/data"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an object that was never written: %v", err)
	}
	for _, content := range []string{"first", "second one"} {
		if err := put(t.Context(), s, "demo/one/data", content); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, "demo/one/data"); got != content {
			t.Errorf("got %q, want %q", got, content)
		}
	}
	if err := s.Put(t.Context(), "demo/one/data", failing(), 8192); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a write that fails: %v", err)
	}
	if err := s.Put(t.Context(), "demo/one/data", strings.NewReader("short"), 8192); err == nil {
		t.Error("a write of fewer bytes than announced is not reported")
	}
	want := map[string]fs.FileMode{"demo": 0o700, "demo/one": 0o700, "demo/one/data": 0o600}
	if diff := cmp.Diff(want, files(t, root)); diff != "" || get(t, s, "demo/one/data") != "second one" {
		t.Errorf("after writes that failed (-want +got):\n%s", diff)
	}
	// A program that was killed has left this.
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
	for range 2 {
		if err := s.Delete(t.Context(), "demo/one/data"); err != nil {
			t.Fatal(err)
		}
	}
	want = map[string]fs.FileMode{"demo": 0o700, "demo/two": 0o700, "demo/two/data": 0o600}
	if diff := cmp.Diff(want, files(t, root)); diff != "" {
		t.Errorf("after the deletion (-want +got):\n%s", diff)
	}
}

// A file system that is not mounted is an error, not an empty store: nothing is written beside it, and nothing counts as deleted.
func TestDirectoryIsMissing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "missing")
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(t.Context(), "a/data")
	for what, err := range map[string]error{"read": err, "write": put(t.Context(), s, "a/data", "x"), "delete": s.Delete(t.Context(), "a/data")} {
		if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "there is no directory "+root) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for location, valid := range map[string]bool{
		"/mnt/backup/keelson": true, "/mnt/backup/": true, "backup": false, "/": false, "//": false, "": false, "ftp://host/a": false,
	} {
		if err := Check(location); (err == nil) != valid {
			t.Errorf("%q: %v", location, err)
		}
	}
}
