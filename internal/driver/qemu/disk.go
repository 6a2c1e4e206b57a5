package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/sandbox"
)

// imageToolTimeout limits qemu-img calls that only touch metadata.
const imageToolTimeout = 60 * time.Second

// Resource limits of qemu-img: it reads images made by tenants.
const (
	imageToolMemory = 1 << 30 // bytes of address space
	imageToolGrowth = 1 << 30 // bytes of metadata that it may add to a file; an empty disk of 63 TiB needs 1.2 MB
)

// imageToolLimits returns the resource limits of a qemu-img that opens these files.
func imageToolLimits(files []sandbox.File) []sandbox.Limit {
	var largest int64
	for _, file := range files {
		if info, err := os.Stat(file.Path); err == nil && file.Access == sandbox.ReadWrite {
			largest = max(largest, info.Size())
		}
	}
	return []sandbox.Limit{
		{Resource: unix.RLIMIT_AS, Value: imageToolMemory},
		{Resource: unix.RLIMIT_CPU, Value: uint64(imageToolTimeout / time.Second)},
		{Resource: unix.RLIMIT_FSIZE, Value: uint64(largest + imageToolGrowth)}, //nolint:gosec // a size is positive
	}
}

// runImageTool runs qemu-img and returns its output. Images are made by tenants, so it runs in a sandbox, in which it can
// open only the files of spec, by their descriptors.
func runImageTool(ctx context.Context, tool string, spec *sandbox.Spec, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, imageToolTimeout)
	defer cancel()
	spec.Limits = imageToolLimits(spec.Files)
	path, argv := spec.Command(tool, args...)
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Env = argv, []string{}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("qemu-img %s: %w: %s", args[0], err, strings.TrimSpace(spec.Named(stderr.String())))
	}
	return stdout.Bytes(), nil
}

// imageInfo is the output of qemu-img info.
type imageInfo struct {
	Format      string `json:"format"`
	VirtualSize int64  `json:"virtual-size"`
	Backing     string `json:"backing-filename"`
	Specific    struct {
		Data struct {
			DataFile string `json:"data-file"`
		} `json:"data"`
	} `json:"format-specific"`
}

// inspect runs qemu-img info on an image named by a user.
func (d *Driver) inspect(ctx context.Context, path, format string) (imageInfo, error) {
	user, err := d.users.reader(path)
	if err != nil {
		return imageInfo{}, err
	}
	return inspect(ctx, d.imageTool, user, path, format)
}

// inspect runs qemu-img info on an image. -U: a disk may be in use.
func inspect(ctx context.Context, tool string, user *sandbox.User, path, format string) (imageInfo, error) {
	var info imageInfo
	spec := &sandbox.Spec{User: user}
	image := sandbox.FDPath(spec.Open(path, sandbox.ReadOnly))
	raw, err := runImageTool(ctx, tool, spec, "info", "-U", "--output=json", "-f", format, image)
	if err == nil {
		err = json.Unmarshal(raw, &info)
	}
	return info, err
}

// checkFound returns an error if a disk that was created has lost its file. It may have had data, so it is not replaced by an empty
// one. otherwise is what a user can do who does not have the file any more.
func checkFound(path, otherwise string) error {
	if _, err := os.Lstat(path); err != nil {
		return fmt.Errorf("the file of the disk is missing: restore it, %s: %w", otherwise, err)
	}
	return nil
}

// createRootDisk creates the root disk, unless the machine has had one.
func (m *machine) createRootDisk(ctx context.Context, base *qemu.Image, size int64) error {
	m.mu.Lock()
	created := m.def.RootCreated
	m.mu.Unlock()
	if created {
		return checkFound(m.path(diskFile), "or delete the machine")
	}
	if err := m.createDisk(ctx, diskFile, rootDiskField, base, size); err != nil {
		return err
	}
	m.rootCreated()
	return nil
}

// rootCreated notes that the file of the root disk is complete. Whoever created it writes the definition before the guest can have
// written to the disk.
func (m *machine) rootCreated() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.def.RootCreated = true
}

// createDisk atomically creates a disk of a machine in the file name if there is none: an overlay of base, or
// an empty disk. field is the field of its size.
func (m *machine) createDisk(ctx context.Context, name, field string, base *qemu.Image, size int64) error {
	return m.d.createFile(ctx, m.path(name), m.user(), field, base, size)
}

// createFile is createDisk for a file of a user.
func (d *Driver) createFile(ctx context.Context, disk string, user *sandbox.User, field string, base *qemu.Image, size int64) error {
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if base == nil && size == 0 {
		return nil
	}
	args := []string{"create", "-q", "-f", "qcow2"}
	if base != nil {
		info, err := d.inspect(ctx, base.Path, base.Format)
		if err != nil {
			return err
		}
		most := d.options.MaxRootDiskBytes
		switch {
		case size != 0 && size < info.VirtualSize:
			return fmt.Errorf("the image has %d bytes, more than %s with %d: make it larger", info.VirtualSize, field, size)
		case size == 0 && most != 0 && info.VirtualSize > most:
			return fmt.Errorf("the disk in the image has %d bytes, and virtualMachines.maxRootDisk allows %d for a disk without %s: set %s to %d or more, or use a smaller image",
				info.VirtualSize, most, field, field, info.VirtualSize)
		}
		size = max(size, info.VirtualSize)
		args = append(args, "-u", "-b", base.Path, "-F", base.Format) // -u: do not open the backing file; the size is known
	}
	spec := &sandbox.Spec{User: user}
	if err := newFile(disk+".new", spec.User); err != nil {
		return err
	}
	args = append(args, sandbox.FDPath(spec.Open(disk+".new", sandbox.ReadWrite)), strconv.FormatInt(size, 10))
	if _, err := runImageTool(ctx, d.imageTool, spec, args...); err != nil {
		return err
	}
	return atomicfile.Place(disk+".new", disk)
}

// growDisk grows a disk of a machine that is off, in the file name, to size.
func (m *machine) growDisk(ctx context.Context, name string, size int64) error {
	return m.d.growFile(ctx, m.path(name), m.user(), size)
}

// growFile is growDisk for a file of a user.
func (d *Driver) growFile(ctx context.Context, path string, user *sandbox.User, size int64) error {
	info, err := inspect(ctx, d.imageTool, user, path, "qcow2")
	if err != nil || size <= info.VirtualSize {
		return err
	}
	spec := &sandbox.Spec{User: user}
	// Its backing file is not needed to grow it.
	image, err := json.Marshal(map[string]any{
		"driver": "qcow2", "backing": nil,
		"file": map[string]any{"driver": "file", "filename": sandbox.FDPath(spec.Open(path, sandbox.ReadWrite))},
	})
	if err != nil {
		return err
	}
	_, err = runImageTool(ctx, d.imageTool, spec, "resize", "-q", "json:"+string(image), strconv.FormatInt(size, 10))
	return err
}
