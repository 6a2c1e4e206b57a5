package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/driver/seed"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// findImage returns the disk in a folder: the only file in it, or in its folder disk, as containerDisks of KubeVirt have it.
func findImage(dir string) (*qemu.Image, error) {
	for _, folder := range []string{filepath.Join(dir, "disk"), dir} {
		entries, err := os.ReadDir(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var files []string
		for _, entry := range entries {
			if entry.Type().IsRegular() {
				files = append(files, filepath.Join(folder, entry.Name()))
			}
		}
		switch len(files) {
		case 0:
		case 1:
			format, err := diskimage.Examine(files[0], "")
			if err != nil {
				err = fmt.Errorf("the disk in spec.image.container: %w", err)
			}
			return &qemu.Image{Path: files[0], Format: format}, err
		default:
			return nil, fmt.Errorf("spec.image.container has several files in the folder of its disk: %s. It must have one, as /disk/NAME", strings.Join(files, ", "))
		}
	}
	return nil, errors.New("spec.image.container has no disk: it must have one file, as /disk/NAME, in the format qcow2 or raw")
}

// makeSeed writes the seed of the machine.
func (l *launcher) makeSeed() error {
	var contents [2]string
	for i, name := range []string{UserDataFile, NetworkDataFile} {
		raw, err := os.ReadFile(filepath.Join(l.dirs.Seed, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		contents[i] = string(raw)
	}
	image, err := seed.NoCloud(l.definition.UID, l.definition.Name, contents[0], contents[1])
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.dirs.Run, seedFile), image, 0o600)
}

// diskPath returns the file of a disk.
func (l *launcher) diskPath(disk Disk) string { return l.dirs.diskPath(disk.Name) }

// diskPath returns the file of a disk.
func (d *Dirs) diskPath(disk string) string {
	if disk == qemu.RootDisk {
		return filepath.Join(d.Disk, "root.qcow2")
	}
	return filepath.Join(d.Disks, disk, "disk.qcow2")
}

// makeDisks creates the disks, or grows them.
func (l *launcher) makeDisks(ctx context.Context) error {
	for _, disk := range l.definition.AllDisks() {
		if err := l.makeDisk(ctx, disk); err != nil {
			return fmt.Errorf("the %s disk: %w", disk.Name, err)
		}
	}
	return nil
}

// makeDisk creates a disk, or grows it. A crash leaves either no disk or a complete one.
func (l *launcher) makeDisk(ctx context.Context, disk Disk) error {
	path := l.diskPath(disk)
	if _, err := os.Stat(path); err == nil {
		if err := os.Remove(downloadOf(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err // it was killed after it had made the disk
		}
		return growDisk(ctx, path, disk.Bytes)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.definition.ImageURL != "" && disk.Name == qemu.RootDisk {
		return l.importImage(ctx, path)
	}
	part := path + partSuffix
	args := []string{"create", "-q", "-f", "qcow2"}
	if l.base != nil && disk.Name == qemu.RootDisk {
		args = append(args, "-b", l.base.Path, "-F", l.base.Format)
	}
	args = append(args, part)
	if disk.Bytes > 0 {
		args = append(args, strconv.FormatInt(disk.Bytes, 10))
	}
	if err := qemuImg(ctx, args...); err != nil {
		return err
	}
	return atomicfile.Place(part, path)
}

// growDisk grows a disk to a size; it never shrinks.
func growDisk(ctx context.Context, path string, bytes int64) error {
	size, err := virtualSize(path)
	if err != nil || size >= bytes {
		return err
	}
	return qemuImg(ctx, "resize", "-q", "-f", "qcow2", path, strconv.FormatInt(bytes, 10))
}

// virtualSize returns the size that the guest sees of a disk of the format qcow2, which is in its header.
func virtualSize(path string) (size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	header := make([]byte, 32)
	if _, err := io.ReadFull(file, header); err != nil || !bytes.HasPrefix(header, []byte("QFI\xfb")) {
		return 0, fmt.Errorf("%s is damaged: it has no header of the format qcow2", path)
	}
	for _, b := range header[24:32] {
		size = size<<8 | int64(b)
	}
	return size, nil
}

func qemuImg(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "qemu-img", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
