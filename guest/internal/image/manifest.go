package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The files of a guest. Manifest.Version and the names are a contract with those who
// boot guests, docs/internals/guest.md.
const (
	KernelFile    = "kernel"
	InitramfsFile = "initramfs"
	ManifestFile  = "guest.json"
)

// Cmdline is what the guest needs on the kernel's command line.
var Cmdline = strings.Join([]string{
	// One console, on which the kernel reports errors only.
	"console=ttyS0", "quiet",
	// A panic resets the machine at once, after pvpanic has told the host.
	"panic=-1",
	// Virtual timers work. On a busy host without KVM they may not pass the test.
	"no_timer_check",
	// All processors of a virtual machine have the same clock. Without KVM the kernel
	// does not know that, and would use one that is slow to read.
	"tsc=reliable",
	// Nobody needs a test of the ciphers at each boot: 0.3 s without KVM.
	"cryptomgr.notests",
	// As soon as memory can be plugged in, the kernel would set 64 MiB aside for
	// devices that cannot reach all of it. Virtio devices can.
	"swiotlb=noforce",
}, " ")

// Manifest says what a guest is and how to boot it.
type Manifest struct {
	// Version is the version of the contract.
	Version       int    `json:"version"`
	Architecture  string `json:"architecture"`
	KernelRelease string `json:"kernelRelease"`
	Kernel        File   `json:"kernel"`
	Initramfs     File   `json:"initramfs"`
	Cmdline       string `json:"cmdline"`
	// MinimumMemoryMiB is what a guest needs to boot, in MiB.
	MinimumMemoryMiB int `json:"minimumMemoryMiB"`
}

// File is a file beside the manifest, and its SHA-256 in hexadecimal.
type File struct {
	Name   string `json:"file"`
	SHA256 string `json:"sha256"`
}

// minimumMemory is what the guest was seen to boot with, in MiB: the kernel takes 37,
// and while the initramfs is unpacked it is there twice.
const minimumMemory = 112

// Write writes a guest to directory: kernel, initramfs and, last, the manifest. A
// machine that boots the old one meanwhile has its files open and is not disturbed.
func Write(directory, release string, kernel, initramfs []byte) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	manifest := Manifest{
		Version: 1, Architecture: "amd64", KernelRelease: release,
		Kernel: describeFile(KernelFile, kernel), Initramfs: describeFile(InitramfsFile, initramfs),
		Cmdline: Cmdline, MinimumMemoryMiB: minimumMemory,
	}
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(directory, ManifestFile)); err != nil {
		return err
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{KernelFile, kernel}, {InitramfsFile, initramfs}, {ManifestFile, append(text, '\n')}} {
		if err := replace(filepath.Join(directory, file.name), file.content); err != nil {
			return fmt.Errorf("writing the guest: %w", err)
		}
	}
	return nil
}

func describeFile(name string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{Name: name, SHA256: hex.EncodeToString(sum[:])}
}

// replace writes a file beside the old one and then puts it in its place.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
