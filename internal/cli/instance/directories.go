package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Directory is a data directory of the user.
type Directory struct {
	Path    string `json:"path"`
	Running bool   `json:"running"` // whether any component runs
}

// Directories returns the data directories of the user that exist, sorted by path: the default and the ephemeral one, and those
// that Secure has recorded.
func Directories() ([]Directory, error) {
	paths := []string{ephemeralDir()}
	if standard, err := defaultDir(); err == nil {
		paths = append(paths, standard)
	}
	if list, err := directoryList(); err == nil {
		links, err := os.ReadDir(list)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, link := range links {
			if path, err := os.Readlink(filepath.Join(list, link.Name())); err == nil {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	var directories []Directory
	for _, path := range slices.Compact(paths) {
		if !isMarked(path) || checkOurs(path) != nil {
			continue
		}
		running, err := controlplane.IsRunning(path)
		if err != nil {
			return nil, err
		}
		directories = append(directories, Directory{Path: path, Running: running})
	}
	return directories, nil
}

// directoryList is the folder with a symbolic link to each data directory that was selected with --data-dir.
func directoryList() (string, error) {
	// XDG Base Directory Specification: ignore relative paths.
	if base := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "keelson", "directories"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "keelson", "directories"), nil
}

// record adds a data directory to the list, and drops those that no longer exist. The list only serves `keelson status`, so
// failures are ignored: the home directory may be missing or read-only.
func record(dir string) {
	list, err := directoryList()
	if err != nil {
		return
	}
	links, _ := os.ReadDir(list)
	for _, link := range links {
		if link := filepath.Join(list, link.Name()); !exists(link) {
			_ = os.Remove(link)
		}
	}
	if standard, err := defaultDir(); err == nil && dir == standard || dir == ephemeralDir() {
		return
	}
	if os.MkdirAll(list, 0o700) == nil {
		sum := sha256.Sum256([]byte(dir))
		_ = os.Symlink(dir, filepath.Join(list, hex.EncodeToString(sum[:8])))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
