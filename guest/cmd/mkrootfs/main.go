// Command mkrootfs puts the guest's commands into a tar file: what a driver that runs
// containers starts instead of the guest. `make guest` runs it, docs/internals/guest.md describes
// the result.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
)

// files are the files besides the commands.
var files = []struct{ name, content string }{
	{"etc/group", "root:x:0:\n"},
	{"etc/os-release", "ID=keelson\nNAME=\"Keelson guest\"\nPRETTY_NAME=\"Keelson guest, as a container\"\n"},
	{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"},
}

func main() {
	commands := flag.String("commands", "", "the program that is all the commands named as arguments")
	out := flag.String("out", "", "the file to write")
	flag.Parse()
	if err := build(*commands, *out, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "mkrootfs: %v\n", err)
		os.Exit(1)
	}
}

func build(commands, out string, names []string) error {
	if commands == "" || out == "" {
		return errors.New("-commands and -out are needed")
	}
	program, err := os.ReadFile(commands)
	if err != nil {
		return err
	}
	archive, err := pack(program, names)
	if err != nil {
		return err
	}
	// Beside the old one and then in its place: somebody may be reading that.
	if err := os.WriteFile(out+".new", archive, 0o644); err != nil {
		return err
	}
	return os.Rename(out+".new", out)
}

// pack returns the archive. All belongs to root, and nothing has a date: the same input
// gives the same bytes.
func pack(program []byte, names []string) ([]byte, error) {
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
	for _, file := range files {
		add(tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: 0o644}, []byte(file.content))
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/commands", Mode: 0o755}, program)
	for _, name := range slices.Sorted(slices.Values(names)) {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "commands", Mode: 0o777}, nil)
	}
	errs = append(errs, w.Close())
	return out.Bytes(), errors.Join(errs...)
}
