package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry is what matters of a file in an archive.
type entry struct {
	Type    byte
	Mode    int64
	Link    string
	Content string
}

// unpack returns what is in an archive. Nothing in one may have an owner but root, or a
// date.
func unpack(t *testing.T, archive []byte) map[string]entry {
	t.Helper()
	found := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.ModTime.Unix() != 0 {
			t.Errorf("%s belongs to %d:%d and is of %v", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		found[header.Name] = entry{header.Typeflag, header.Mode, header.Linkname, string(content)}
	}
}

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	commands, out := filepath.Join(dir, "commands"), filepath.Join(dir, "rootfs.tar")
	if err := os.WriteFile(commands, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, []byte("an older one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := build(commands, out, []string{"sh", "ls", "sleep"}); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	directory := entry{Type: tar.TypeDir, Mode: 0o755}
	link := entry{Type: tar.TypeSymlink, Mode: 0o777, Link: "commands"}
	want := map[string]entry{
		"bin/": directory, "etc/": directory, "root/": directory, "run/": directory, "var/": directory, "var/log/": directory,
		"tmp/":         {Type: tar.TypeDir, Mode: 0o1777},
		"bin/commands": {Type: tar.TypeReg, Mode: 0o755, Content: "a program"},
		"bin/ls":       link, "bin/sh": link, "bin/sleep": link,
	}
	for _, file := range files {
		want[file.name] = entry{Type: tar.TypeReg, Mode: 0o644, Content: file.content}
	}
	if diff := cmp.Diff(want, unpack(t, archive)); diff != "" {
		t.Errorf("the archive (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(out + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is left that was only for writing: %v", err)
	}
	again, err := pack([]byte("a program"), []string{"sleep", "sh", "ls"})
	if err != nil || !bytes.Equal(archive, again) {
		t.Errorf("the same commands in another order give another archive, %v", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	dir := t.TempDir()
	commands := filepath.Join(dir, "commands")
	if err := os.WriteFile(commands, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, commands, out string }{
		{"no program", "", filepath.Join(dir, "a.tar")},
		{"no result", commands, ""},
		{"a program that is not there", filepath.Join(dir, "none"), filepath.Join(dir, "b.tar")},
		{"a folder that is not there", commands, filepath.Join(dir, "none", "c.tar")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := build(test.commands, test.out, []string{"sh"}); err == nil {
				t.Error("there was no error")
			}
			if test.out == "" {
				return
			}
			if _, err := os.Stat(test.out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}
