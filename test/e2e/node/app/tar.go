package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tarMain implements the part of tar(1) that kubectl cp needs: `tar cf - PATH` and `tar -xmf - [-C
// FOLDER]`.
func tarMain(args []string, stdin io.Reader, stdout io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "cf" && args[1] == "-":
		return create(stdout, args[2])
	case len(args) == 2 && args[0] == "-xmf" && args[1] == "-":
		return extract(stdin, ".")
	case len(args) == 4 && args[0] == "-xmf" && args[1] == "-" && args[2] == "-C":
		return extract(stdin, args[3])
	default:
		return fmt.Errorf("unknown arguments %q", args)
	}
}

// create writes a file, or a folder with its contents, as an archive.
func create(w io.Writer, root string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		header.Name = strings.TrimLeft(path, "/")
		if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(out, file)
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}

// extract writes the files and folders of an archive into a folder.
func extract(r io.Reader, folder string) error {
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(folder, header.Name)
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, header.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}
}
