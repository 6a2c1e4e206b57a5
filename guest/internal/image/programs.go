package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Where programs and libraries are in the root of a file system.
var (
	programDirectories = []string{"bin", "sbin", "usr/bin", "usr/sbin"}
	libraryDirectories = []string{
		"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib",
	}
)

// CollectPrograms returns programs, and the libraries that they need, by their path in the guest.
// It finds them below root, the root of a file system.
func CollectPrograms(root string, names ...string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range names {
		content, err := findFile(root, programDirectories, name)
		if err != nil {
			return nil, err
		}
		files["bin/"+name] = content
		if err := addLibraries(files, root, content); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return files, nil
}

// addLibraries adds the dynamic loader and the libraries of a program or library, and theirs.
func addLibraries(files map[string][]byte, root string, program []byte) error {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	needed, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		needed = append(needed, loader)
	}
	for _, name := range needed {
		target := "lib/" + name
		if _, done := files[target]; done {
			continue
		}
		content, err := findFile(root, libraryDirectories, name)
		if err != nil {
			return err
		}
		files[target] = content
		if err := addLibraries(files, root, content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// loader is the dynamic loader of x86-64, which programs expect in /lib64.
const loader = "ld-linux-x86-64.so.2"

// findFile reads the first file of a name in one of some directories below root.
func findFile(root string, directories []string, name string) ([]byte, error) {
	for _, directory := range directories {
		content, err := os.ReadFile(filepath.Join(root, directory, name))
		if err == nil {
			return content, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("there is no %s in %s: it needs the packages busybox-static and e2fsprogs with its libraries", path.Base(name), root)
}

// notForGuests are the applets of busybox that the guest has otherwise, or that are of no use in it.
var notForGuests = []string{"busybox", "halt", "init", "linuxrc", "poweroff", "reboot", "mke2fs", "dpkg", "dpkg-deb", "rpm", "rpm2cpio"}

// Applets returns the commands that a busybox has, by running it.
func Applets(busybox []byte) ([]string, error) {
	file, err := os.CreateTemp("", "busybox")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }() // a temporary file
	_, err = file.Write(busybox)
	if err := errors.Join(err, file.Chmod(0o700), file.Close()); err != nil {
		return nil, err
	}
	listed, err := exec.Command(file.Name(), "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the commands of busybox: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(listed)), func(name string) bool {
		return slices.Contains(notForGuests, name)
	}), nil
}
