// Package rootdisk makes the root file system of the guest persistent: the root disk of the machine is an overlay on the
// initramfs.
package rootdisk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// serial is the serial number of the root disk; the driver qemu sets it.
	serial = "root"
	// label is the label of the file system that the guest makes.
	label = "keelson-root"
	// Directory is where the file system of the disk itself is mounted.
	Directory = "/run/disk"
)

// Find returns the device of the root disk among disks, which are names such as vda; empty if there is none.
func Find(disks []string) string {
	for _, disk := range disks {
		text, err := os.ReadFile("/sys/block/" + disk + "/serial")
		if err == nil && strings.TrimSpace(string(text)) == serial {
			return "/dev/" + disk
		}
	}
	return ""
}

// content is what is on a disk.
type content int

const (
	// unformatted: nothing, or the rest of an interrupted mke2fs, which writes the beginning of the disk last.
	unformatted content = iota
	// formatted: the file system of a guest.
	formatted
	// foreign: something else, which the guest does not touch.
	foreign
)

// inspect returns what is on a disk of a size in bytes.
func inspect(disk io.ReaderAt, size int64) (content, error) {
	// The superblock of ext4 is at 1024; its magic number and its label are at these offsets in it.
	// https://docs.kernel.org/filesystems/ext4/super.html
	const superblock, magicAt, labelAt, magic, labelLength = 1024, 0x38, 0x78, 0xef53, 16
	const first, last = 128 << 10, 64 << 10
	head := make([]byte, min(first, size))
	tail := make([]byte, min(last, size))
	if _, err := disk.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return foreign, err
	}
	if _, err := disk.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return foreign, err
	}
	isZero := func(part []byte) bool { return len(bytes.Trim(part, "\x00")) == 0 }
	if isZero(head) && isZero(tail) {
		return unformatted, nil
	}
	if len(head) >= superblock+labelAt+labelLength {
		block := head[superblock:]
		name, _, _ := bytes.Cut(block[labelAt:labelAt+labelLength], []byte{0})
		if binary.LittleEndian.Uint16(block[magicAt:]) == magic && string(name) == label {
			return formatted, nil
		}
	}
	return foreign, nil
}

// ErrForeign means that the disk has other content, which the guest leaves alone.
var ErrForeign = errors.New("the root disk has other content and is left alone; to use it, run: mkfs.ext4 -L " + label + " on it, and restart the machine")

// Prepare formats the disk if it is empty, and checks and mounts its file system on a directory. Run runs a program.
func Prepare(device, directory string, run func(*exec.Cmd) error) error {
	disk, err := os.Open(device)
	if err != nil {
		return err
	}
	defer disk.Close()
	size, err := disk.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	found, err := inspect(disk, size)
	switch {
	case err != nil:
		return err
	case found == foreign:
		return ErrForeign
	case found == unformatted:
		if err := runTool(run, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "1", "-L", label, device); err != nil {
			return err
		}
	default:
		if err := check(run, device); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(device, directory, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	return grow(directory, size)
}

// runTool runs a program and returns its output as the error.
func runTool(run func(*exec.Cmd) error, name string, args ...string) error {
	var output bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := run(cmd); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(output.String()))
	}
	return nil
}

// check repairs what e2fsck repairs without a question.
func check(run func(*exec.Cmd) error, device string) error {
	err := runTool(run, "e2fsck", "-p", device)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // it repaired something
	}
	return err
}

// grow grows a mounted file system to the size of its disk, if the disk has grown.
func grow(directory string, size int64) error {
	const resize = 0x40086610 // EXT4_IOC_RESIZE_FS of linux/ext4.h
	root, err := os.Open(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	var info unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &info); err != nil {
		return err
	}
	blocks := size / info.Bsize
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), resize, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return fmt.Errorf("grow the file system to %d blocks: %w", blocks, errno)
	}
	return nil
}

// Switch makes an overlay of the file system in directory the root file system. The mounts of targets move along, and the
// one of directory moves to Directory.
func Switch(directory string, targets []string) error {
	upper, work, root := filepath.Join(directory, "upper"), filepath.Join(directory, "work"), directory+".new"
	for _, needed := range []string{upper, work, root} {
		if err := os.MkdirAll(needed, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount the overlay: %w", err)
	}
	for _, target := range targets {
		if err := move(target, root+target); err != nil {
			return err
		}
	}
	if err := move(directory, root+Directory); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the new root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return os.Chdir("/")
}

// move moves a mount.
func move(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move %s to %s: %w", from, to, err)
	}
	return nil
}
