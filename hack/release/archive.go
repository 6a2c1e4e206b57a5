package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// archive collects the entries of a tar archive by name; a later entry replaces an earlier one.
// Owners, times and the order of entries do not depend on the machine.
type archive struct {
	prefix  string
	entries map[string]entry
	err     error // the first error; write returns it
}

type entry struct {
	mode   int64
	data   []byte
	target string // of a symbolic link
}

func (a *archive) add(name string, e entry) {
	if a.entries == nil {
		a.entries = map[string]entry{}
	}
	a.entries[name] = e
}

// folder adds all files of a folder below name, except Go files, which are tests, and their data.
func (a *archive) folder(folder, name string) {
	files, err := filesIn(folder)
	a.err = errors.Join(a.err, err)
	for _, file := range files {
		if filepath.Ext(file) == ".go" || strings.Contains(file, "testdata"+string(filepath.Separator)) {
			continue
		}
		a.file(filepath.Join(folder, file), path.Join(name, filepath.ToSlash(file)))
	}
}

// file adds one file. Programs stay executable.
func (a *archive) file(from, name string) {
	info, err := os.Stat(from)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	data, err := os.ReadFile(from)
	a.err = errors.Join(a.err, err)
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	a.add(name, entry{mode: mode, data: data})
}

func (a *archive) content(name string, data []byte) { a.add(name, entry{mode: 0o644, data: data}) }

func (a *archive) link(name, target string) { a.add(name, entry{mode: 0o777, target: target}) }

// tar returns the archive without compression.
func (a *archive) tar() ([]byte, error) {
	if a.err != nil {
		return nil, a.err
	}
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, name := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[name]
		header := &tar.Header{Name: a.prefix + name, Mode: e.mode, Size: int64(len(e.data)), Typeflag: tar.TypeReg}
		if e.target != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}

// write writes the archive, compressed with gzip.
func (a *archive) write(file string) error {
	data, err := a.tar()
	if err != nil {
		return err
	}
	var buffer bytes.Buffer
	w, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, buffer.Bytes(), 0o644)
}
