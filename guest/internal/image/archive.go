// Package image builds the guest: it collects kernel modules and programs into an
// initramfs and describes the result for those who boot it. The same input gives the
// same bytes.
package image

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/pierrec/lz4/v4"
	"github.com/u-root/u-root/pkg/cpio"
)

// Tree is a file system to be packed, by path without a leading slash. All belongs
// to root, and nothing has a date.
type Tree struct {
	records map[string]cpio.Record
}

// NewTree returns an empty tree.
func NewTree() *Tree {
	return &Tree{records: map[string]cpio.Record{}}
}

// Directory adds a directory and those above it.
func (t *Tree) Directory(name string, mode uint64) {
	t.parents(name)
	t.records[name] = cpio.Directory(name, mode)
}

// File adds a file.
func (t *Tree) File(name string, content []byte, mode uint64) {
	t.parents(name)
	t.records[name] = cpio.StaticRecord(content, cpio.Info{Name: name, Mode: mode | cpio.S_IFREG, NLink: 1})
}

// Link adds a symbolic link to target.
func (t *Tree) Link(name, target string) {
	t.parents(name)
	t.records[name] = cpio.Symlink(name, target)
}

func (t *Tree) parents(name string) {
	for directory := path.Dir(name); directory != "."; directory = path.Dir(directory) {
		if _, there := t.records[directory]; !there {
			t.records[directory] = cpio.Directory(directory, 0o755)
		}
	}
}

// Pack returns the tree as a cpio archive in the kernel's format (newc), sorted.
func (t *Tree) Pack() ([]byte, error) {
	var out bytes.Buffer
	w := cpio.Newc.Writer(&out)
	for i, name := range slices.Sorted(maps.Keys(t.records)) {
		record := t.records[name]
		record.Ino = uint64(i) + 1
		if err := w.WriteRecord(record); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Compress compresses with LZ4, in the older format, which is the one that kernels
// read. zstd makes it a quarter smaller, but each boot has to undo it: without KVM that
// takes a tenth of a second longer.
func Compress(w io.Writer, content []byte) error {
	encoder := lz4.NewWriter(w)
	if err := encoder.Apply(lz4.LegacyOption(true), lz4.CompressionLevelOption(lz4.Level9), lz4.ConcurrencyOption(1)); err != nil {
		return err
	}
	if _, err := encoder.Write(content); err != nil {
		return err
	}
	return encoder.Close()
}
