package qemu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// partSuffix is the suffix of partial downloads.
	partSuffix = ".part"
	// maxParts is the maximum number of partial downloads.
	maxParts = 64
	// partsSize is the maximum size of all partial downloads, as a multiple of the largest image.
	partsSize = 4
	// partKeep is the time that a partial download is kept for the next attempt.
	partKeep = 24 * time.Hour
)

// part is a partial download.
type part struct {
	path     string
	digest   string
	size     int64
	modified time.Time
	// busy means that the download is in progress.
	busy bool
}

// parts returns all partial downloads, oldest first; i.mu is held.
func (i *images) parts() ([]part, error) {
	entries, err := os.ReadDir(i.dir)
	if err != nil {
		return nil, err
	}
	busy := map[string]bool{}
	for from := range i.downloads {
		busy[from.part()] = true
	}
	var all []part
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), partSuffix) {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // a download has just removed it
		}
		if err != nil {
			return nil, err
		}
		digest, _, _ := strings.Cut(entry.Name(), ".")
		all = append(all, part{filepath.Join(i.dir, entry.Name()), digest, info.Size(), info.ModTime(), busy[entry.Name()]})
	}
	slices.SortFunc(all, func(a, b part) int { return cmp.Or(a.modified.Compare(b.modified), strings.Compare(a.path, b.path)) })
	return all, nil
}

// makeRoom removes idle partial downloads, oldest first, until the rest is within the limits. The
// error means that the active downloads alone are too large.
func (i *images) makeRoom() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	all, err := i.parts()
	if err != nil {
		return err
	}
	number, size := len(all), int64(0)
	for _, p := range all {
		size += p.size
	}
	tooLarge := func() bool { return i.limit > 0 && size > partsSize*i.limit }
	for _, p := range all {
		if p.busy || number <= maxParts && !tooLarge() {
			continue
		}
		if err := os.Remove(p.path); err != nil {
			return err
		}
		number--
		size -= p.size
	}
	if tooLarge() {
		return fmt.Errorf("the active image downloads have %d MiB, more than %d times virtualMachines.imageMaxSize, %d MiB; retrying",
			size>>20, partsSize, partsSize*i.limit>>20)
	}
	return nil
}
