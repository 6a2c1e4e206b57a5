// Package guestimage reads the default guest, see docs/guest.md.
package guestimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Guest is the default guest.
type Guest struct {
	// Kernel and Initramfs are files, Cmdline is the command line of the kernel.
	Kernel, Initramfs, Cmdline string
	// MinimumMemory is the memory that it needs, in bytes.
	MinimumMemory int64
}

// CheckMemory returns an error if a default guest that needs a minimum of memory has fewer bytes.
func CheckMemory(minimum, bytes int64) error {
	if bytes < minimum {
		return fmt.Errorf("the default guest needs at least %d MiB", minimum>>20)
	}
	return nil
}

// version is the version of the contract with the default guest.
const version = 1

// Read reads the default guest in a folder.
func Read(dir string) (Guest, error) {
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
		return Guest{}, fmt.Errorf("no default guest in %s: run make guest, or set spec.image", dir)
	}
	if err == nil {
		err = json.Unmarshal(raw, &manifest)
	}
	if err != nil {
		return Guest{}, fmt.Errorf("read the default guest: %s: %w", path, err)
	}
	if manifest.Version != version {
		return Guest{}, fmt.Errorf("the default guest in %s has version %d instead of %d: rebuild it with make guest",
			dir, manifest.Version, version)
	}
	return Guest{
		Kernel: filepath.Join(dir, manifest.Kernel.File), Initramfs: filepath.Join(dir, manifest.Initramfs.File),
		Cmdline: manifest.Cmdline, MinimumMemory: manifest.MinimumMemoryMiB << 20,
	}, nil
}
