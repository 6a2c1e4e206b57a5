package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// diskLinks is where programs find disks by name, as udev makes them: virtio- and the
// serial number, which is the name of the disk in the VirtualMachine.
const diskLinks = "/dev/disk/by-id"

// serialForm matches the serial numbers that become names of links.
var serialForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// LinkDisk makes the link to a disk or partition that has come. directory is its folder
// in /sys. A disk without a serial number gets none.
func LinkDisk(directory string) error {
	return linkDisk(directory, diskLinks)
}

func linkDisk(directory, links string) error {
	serial, err := os.ReadFile(filepath.Join(directory, "serial"))
	suffix := ""
	if number, partErr := os.ReadFile(filepath.Join(directory, "partition")); partErr == nil {
		serial, err = os.ReadFile(filepath.Join(directory, "..", "serial"))
		suffix = "-part" + strings.TrimSpace(string(number))
	}
	name := strings.TrimSpace(string(serial))
	if err != nil || !serialForm.MatchString(name) {
		return nil // a disk of another kind
	}
	if err := os.MkdirAll(links, 0o755); err != nil {
		return err
	}
	link := filepath.Join(links, "virtio-"+name+suffix)
	target := filepath.Join("..", "..", filepath.Base(directory))
	if now, err := os.Readlink(link); err == nil && now == target {
		return nil
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, link); err != nil {
		return fmt.Errorf("naming the disk %s: %w", filepath.Base(directory), err)
	}
	return nil
}

// UnlinkDisk removes the links to a disk or partition that has gone. directory is the
// folder in /sys that it had.
func UnlinkDisk(directory string) error {
	return unlinkDisk(directory, diskLinks)
}

func unlinkDisk(directory, links string) error {
	all, err := filepath.Glob(filepath.Join(links, "virtio-*"))
	if err != nil {
		return err
	}
	for _, link := range all {
		target, err := os.Readlink(link)
		if err == nil && filepath.Base(target) == filepath.Base(directory) {
			err = os.Remove(link)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
