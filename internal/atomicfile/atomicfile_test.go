package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// content returns what is in a file; "" if there is none.
func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func TestWriteIsDurableBeforeItReturns(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	// What is synced, and what a reader sees at that moment.
	type synced struct{ Name, Reader string }
	var got []synced
	sync = func(f *os.File) error {
		got = append(got, synced{f.Name(), content(t, path)})
		return f.Sync()
	}
	defer func() { sync = (*os.File).Sync }()
	if err := Write(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	want := []synced{{path + ".new", "old"}, {dir, "new"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("synced (-want +got):\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, error %v", info.Mode(), err)
	}
}

func TestWriteThatFailsLeavesTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := Write(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	sync = func(*os.File) error { return full }
	defer func() { sync = (*os.File).Sync }()
	if err := Write(path, []byte("new")); !errors.Is(err, full) {
		t.Errorf("the error is %v", err)
	}
	if got := content(t, path); got != "old" {
		t.Errorf("the file has %q", got)
	}
	if got := content(t, path+".new"); got != "" {
		t.Errorf("a temporary file is left with %q", got)
	}
}
