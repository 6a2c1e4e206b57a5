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
	// partSuffix ends the names of parts: what has arrived of images.
	partSuffix = ".part"
	// maxParts is how many parts there may be.
	maxParts = 64
	// partsSize is how large all parts together may be, as a multiple of the largest image.
	partsSize = 4
	// partKeep is how long a part is kept for the next attempt.
	partKeep = 24 * time.Hour
	// sizeCheckInterval is how many bytes a download takes between two looks at the size of all parts.
	sizeCheckInterval = 16 << 20
)

// part is what has arrived of an image.
type part struct {
	path     string
	digest   string
	size     int64
	modified time.Time
	// busy says that the download is under way.
	busy bool
}

// parts returns all parts, the oldest first; i.mu is held.
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

// makeRoom removes parts that are not being downloaded, the oldest first, until the others are few and small enough. The
// error says that the downloads under way are too large together.
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
		return fmt.Errorf("the downloads of images under way take %d MiB, and all together may take %d times --vm-image-max-size, %d MiB; it is tried again",
			size>>20, partsSize, partsSize*i.limit>>20)
	}
	return nil
}
