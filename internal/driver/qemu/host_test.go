package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The host of a machine is identified by the state directory, wherever that is.
func TestHostIsTheStateDirectory(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	first, err := identify(one)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := identify(other); err != nil || second.ID == first.ID || second.Name != first.Name {
		t.Errorf("another directory has %+v, %v; the first one %+v", second, err, first)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(one, moved); err != nil {
		t.Fatal(err)
	}
	if again, err := identify(moved); err != nil || again != first {
		t.Errorf("after a move the directory has %+v, %v, want %+v", again, err, first)
	}
	info, err := os.Stat(filepath.Join(moved, hostFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// An unreadable identity is not replaced: otherwise every machine would belong to another host.
func TestUnreadableHost(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, hostFile)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if host, err := identify(dir); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %+v, %v; want an error that names the file", host, err)
	}
}
