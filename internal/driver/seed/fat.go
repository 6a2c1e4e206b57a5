package seed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/fat12"
)

const (
	// minSeed is the size of a seed with small files, in bytes. Every FAT12 implementation accepts
	// it.
	minSeed = 512 << 10
	// maxSeed is the size that FAT12 reaches with clusters of 32 KiB.
	maxSeed = 32 << 20
)

// seedTime is the timestamp of the label and of all files of a seed, so that equal files produce equal bytes.
var seedTime = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

// File is a file for the root directory of a FAT file system.
type File struct {
	Name    string
	Content []byte
}

// FAT returns the image of a FAT12 file system with a label of at most 8 characters.
func FAT(label string, files []File) (image []byte, err error) {
	content := 0
	for _, f := range files {
		content += len(f.Content)
	}
	size := minSeed
	for size < 2*content+minSeed/2 { // room for the tables and partial clusters
		size *= 2
	}
	if size > maxSeed {
		return nil, fmt.Errorf("a seed of %d bytes is too large", content)
	}
	disk, err := os.CreateTemp("", "keelson-seed-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	// The seed may contain secrets. Without a name, the file disappears with the process.
	if err := errors.Join(os.Remove(disk.Name()), disk.Truncate(int64(size))); err != nil {
		return nil, err
	}
	fs, err := fat12.Create(file.New(disk, false), int64(size), 0, 0, label, true)
	if err != nil {
		return nil, err
	}
	// The label is an entry of the root directory, too.
	if err := fs.Chtimes("/"+label, seedTime, seedTime, seedTime); err != nil {
		return nil, fmt.Errorf("set the time of the label of the seed: %w", err)
	}
	for _, f := range files {
		if err := writeFile(fs, f); err != nil {
			return nil, fmt.Errorf("write %s into the seed: %w", f.Name, err)
		}
	}
	image = make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(disk, 0, int64(size)), image)
	return image, err
}

func writeFile(fs *fat12.FileSystem, f File) error {
	out, err := fs.OpenFile("/"+f.Name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	_, err = out.Write(f.Content)
	return errors.Join(err, out.Close(), fs.Chtimes("/"+f.Name, seedTime, seedTime, seedTime))
}
