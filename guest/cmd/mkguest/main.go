// Command mkguest builds the guest from a kernel, its modules, the init and programs. It writes the files that
// docs/internals/guest.md describes. `make guest` runs it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/keelson-dev/keelson/guest/internal/image"
	"github.com/keelson-dev/keelson/guest/internal/modules"
)

// osRelease is the guest's /etc/os-release.
const osRelease = `ID=keelson
NAME="Keelson guest"
PRETTY_NAME="Keelson guest"
`

func main() {
	var in inputs
	flag.StringVar(&in.kernel, "kernel", "", "the kernel, a bzImage")
	flag.StringVar(&in.modules, "modules", "", "the folder of the kernel's modules (default /lib/modules/RELEASE)")
	flag.StringVar(&in.init, "init", "", "the program that is the first process")
	flag.StringVar(&in.programs, "programs", "", "the root of a file system with busybox and e2fsprogs")
	flag.StringVar(&in.out, "out", "", "the folder to write the guest to")
	flag.Parse()
	if err := in.build(); err != nil {
		fmt.Fprintf(os.Stderr, "mkguest: %v\n", err)
		os.Exit(1)
	}
}

type inputs struct {
	kernel, modules, init, programs, out string
}

func (in *inputs) build() error {
	if in.kernel == "" || in.init == "" || in.programs == "" || in.out == "" {
		return errors.New("-kernel, -init, -programs and -out are required")
	}
	release, err := image.KernelRelease(in.kernel)
	if err != nil {
		return err
	}
	if in.modules == "" {
		in.modules = "/lib/modules/" + release
	}
	programs, err := image.CollectPrograms(in.programs, "busybox", "mke2fs", "e2fsck", "resize2fs")
	if err != nil {
		return err
	}
	applets, err := image.Applets(programs["bin/busybox"])
	if err != nil {
		return err
	}
	tree, err := in.tree(programs, applets)
	if err != nil {
		return err
	}
	archive, err := tree.Pack()
	if err != nil {
		return err
	}
	var initramfs bytes.Buffer
	if err := image.Compress(&initramfs, archive); err != nil {
		return err
	}
	kernel, err := os.ReadFile(in.kernel)
	if err != nil {
		return err
	}
	if err := image.Write(in.out, release, image.Unpack(kernel), initramfs.Bytes()); err != nil {
		return err
	}
	if err := image.WriteRootfs(in.out, programs["bin/busybox"], applets); err != nil {
		return err
	}
	fmt.Printf("guest: Linux %s, initramfs %.1f MB (%.1f MB unpacked)\n", release,
		float64(initramfs.Len())/1e6, float64(len(archive))/1e6)
	return nil
}

// tree returns the content of the initramfs.
func (in *inputs) tree(programs map[string][]byte, applets []string) (*image.Tree, error) {
	tree := image.NewTree()
	for _, directory := range []string{"dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "var/log"} {
		tree.Directory(directory, 0o755)
	}
	tree.File("etc/os-release", []byte(osRelease), 0o644)
	tree.File("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644)
	tree.File("etc/group", []byte("root:x:0:\n"), 0o644)
	program, err := os.ReadFile(in.init)
	if err != nil {
		return nil, err
	}
	tree.File("init", program, 0o755)
	for _, name := range applets {
		tree.Link("bin/"+name, "busybox")
	}
	for name, content := range programs {
		tree.File(name, content, 0o755)
	}
	for _, name := range []string{"mkfs.ext2", "mkfs.ext3", "mkfs.ext4"} {
		tree.Link("bin/"+name, "mke2fs")
	}
	tree.Link("bin/fsck.ext4", "e2fsck")
	tree.Link("lib64", "lib")
	tree.Link("sbin", "bin")
	tree.Link("usr/bin", "../bin")
	tree.Link("usr/sbin", "../bin")
	for _, name := range []string{"poweroff", "reboot", "halt", "sftp-server"} {
		tree.Link("bin/"+name, "../init")
	}
	return tree, addModules(tree, in.modules)
}

func addModules(tree *image.Tree, directory string) error {
	collected, err := image.CollectModules(directory)
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := collected.Table.Write(&table); err != nil {
		return err
	}
	root := modules.Directory[1:] + "/"
	tree.File(root+modules.TableFile, table.Bytes(), 0o644)
	for name, content := range collected.Content {
		tree.File(root+name+".ko", content, 0o644)
	}
	return nil
}
