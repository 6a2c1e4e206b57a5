package qemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// guest is the default guest, see docs/guest.md.
type guest struct {
	kernel, initramfs, cmdline string
	minimumMemory              int64
}

// guestVersion is the version of the contract with the default guest.
const guestVersion = 1

// readGuest reads the default guest in a folder.
func readGuest(dir string) (guest, error) {
	var manifest struct {
		Version           int
		Architecture      string
		Kernel, Initramfs struct{ File string }
		Cmdline           string
		MinimumMemoryMiB  int64
	}
	path := filepath.Join(dir, "guest.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return guest{}, fmt.Errorf("no default guest in %s: run make guest, or set spec.image", dir)
	}
	if err == nil {
		err = json.Unmarshal(raw, &manifest)
	}
	if err != nil {
		return guest{}, fmt.Errorf("read the default guest: %s: %w", path, err)
	}
	if manifest.Version != guestVersion {
		return guest{}, fmt.Errorf("the default guest in %s has version %d instead of %d: rebuild it with make guest",
			dir, manifest.Version, guestVersion)
	}
	return guest{
		kernel: filepath.Join(dir, manifest.Kernel.File), initramfs: filepath.Join(dir, manifest.Initramfs.File),
		cmdline: manifest.Cmdline, minimumMemory: manifest.MinimumMemoryMiB << 20,
	}, nil
}
