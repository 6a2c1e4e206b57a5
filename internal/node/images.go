package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// OwnImages is the prefix of the names of images that Keelson brings to its nodes. No registry has them.
const OwnImages = "keelson.dev/"

// Image is an image of Keelson itself, made from a folder of this host.
type Image struct {
	// Name contains the checksum of the files, so that those of several versions of Keelson have different names.
	Name   string
	Folder string
	// Entrypoint is the path of its program.
	Entrypoint string
}

// NewImage returns the image called OwnImages + name that is made from a folder.
func NewImage(name, folder, entrypoint string) (Image, error) {
	sum := sha256.New()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return addEntry(sum, folder, path, entry)
	})
	if err != nil {
		return Image{}, fmt.Errorf("read the files of the image %s: %w", name, err)
	}
	return Image{Name: OwnImages + name + ":" + hex.EncodeToString(sum.Sum(nil)[:8]), Folder: folder, Entrypoint: entrypoint}, nil
}

// addEntry adds a file or folder to a checksum.
func addEntry(sum hash.Hash, root, path string, entry fs.DirEntry) (err error) {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	fmt.Fprintf(sum, "%q %v", name, info.Mode())
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		fmt.Fprintf(sum, " %q", target)
		return err
	case !info.Mode().IsRegular():
		return nil
	}
	fmt.Fprintf(sum, " %d ", info.Size())
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(sum, file)
	return err
}

// LoadImages loads images into a running node that does not have them.
func (s Settings) LoadImages(ctx context.Context, images []Image) error {
	for _, image := range images {
		load := exec.CommandContext(ctx, filepath.Join(s.Programs, Program), "image-load", "-own", "-name="+image.Name,
			"-entrypoint="+image.Entrypoint, image.Folder, filepath.Join(s.Dir, Socket))
		if output, err := load.CombinedOutput(); err != nil {
			return fmt.Errorf("load the image %s: %w: %s", image.Name, err, bytes.TrimSpace(output))
		}
	}
	return nil
}
