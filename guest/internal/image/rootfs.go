package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// RootfsFile is the root file system of a container, beside the other files of a guest.
const RootfsFile = "rootfs.tar"

// rootfsFiles are the files besides the commands.
var rootfsFiles = []struct{ name, content string }{
	{"etc/group", "root:x:0:\n"},
	{"etc/os-release", "ID=keelson\nNAME=\"Keelson guest\"\nPRETTY_NAME=\"Keelson guest, as a container\"\n"},
	{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"},
}

// WriteRootfs writes the commands of the guest as a tar file: a driver that runs containers starts it instead of the guest.
func WriteRootfs(directory string, busybox []byte, applets []string) error {
	archive, err := packRootfs(busybox, applets)
	if err != nil {
		return err
	}
	// A process may be reading the old file.
	file := filepath.Join(directory, RootfsFile)
	if err := os.WriteFile(file+".new", archive, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// packRootfs returns the archive. Everything belongs to root and has no date: the same input gives the same bytes.
func packRootfs(busybox []byte, applets []string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var errs []error
	add := func(header tar.Header, content []byte) {
		header.Size = int64(len(content))
		errs = append(errs, w.WriteHeader(&header))
		_, err := w.Write(content)
		errs = append(errs, err)
	}
	for _, directory := range []string{"bin", "etc", "root", "run", "tmp", "var", "var/log"} {
		mode := int64(0o755)
		if directory == "tmp" {
			mode = 0o1777
		}
		add(tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: mode}, nil)
	}
	for _, file := range rootfsFiles {
		add(tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: 0o644}, []byte(file.content))
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, busybox)
	for _, name := range slices.Sorted(slices.Values(applets)) {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox", Mode: 0o777}, nil)
	}
	errs = append(errs, w.Close())
	return out.Bytes(), errors.Join(errs...)
}
