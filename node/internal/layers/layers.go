// Package layers shares the unpacked layers of images between the nodes of a machine: on disk, and in the page cache.
//
// The shared folder has a folder for each layer:
//
//	used    a file with its inode number, and with a hard link in each snapshot that uses the layer
//	fs      the files of the layer
//
// A snapshot of a node whose layer is shared has a link in the place of its own fs. So what a node uses is known from its
// files alone, whether it runs or not, and is forgotten with them.
package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The files of a layer, and of a snapshot.
const (
	filesName = "fs"
	usedName  = "used"
	// nextName is what takes the place of the files of a snapshot, and then those files until they are deleted.
	nextName = "fs.next"
)

// lockName is the file in the shared folder that is locked for each change of it.
const lockName = "lock"

// Dir is a folder with the layers that nodes share.
type Dir string

// Adopt has a snapshot use a shared layer in the place of its own files, which are deleted. It reports whether the layer is there. The
// snapshot is the folder of a snapshot of containerd, two folders below the one in which the node sees the shared folder as Mountpoint.
func (d Dir) Adopt(snapshot, layer string) (adopted bool, err error) {
	err = d.locked(func() error {
		adopted, err = d.adopt(snapshot, layer)
		return err
	})
	return adopted, err
}

// Publish makes the files of a snapshot a shared layer, or has the snapshot use the one that is there already.
func (d Dir) Publish(snapshot, layer string) error {
	if isLink(filepath.Join(snapshot, filesName)) {
		return nil
	}
	// Other nodes will trust the files, also after a power failure.
	if err := sync(snapshot); err != nil {
		return err
	}
	return d.locked(func() error {
		adopted, err := d.adopt(snapshot, layer)
		if adopted || err != nil {
			return err
		}
		return d.publish(snapshot, layer)
	})
}

// Sweep deletes the layers that no snapshot uses.
func (d Dir) Sweep() error {
	return d.locked(func() error {
		entries, err := os.ReadDir(string(d))
		if err != nil {
			return err
		}
		var errs []error
		for _, entry := range entries {
			if !entry.IsDir() || d.isUsed(entry.Name()) {
				continue
			}
			errs = append(errs, d.remove(entry.Name()))
		}
		return errors.Join(errs...)
	})
}

// publish moves the files of a snapshot to a new layer. The exchange decides: before it, the snapshot has its files, and the layer is one
// that is not complete; after it, the layer is complete, and used by the snapshot.
func (d Dir) publish(snapshot, layer string) error {
	if err := d.remove(layer); err != nil { // what an interrupted attempt has left
		return err
	}
	files := d.path(layer, filesName)
	if err := os.Mkdir(d.path(layer), 0o700); err != nil {
		return err
	}
	if err := os.Symlink(target(layer), files); err != nil {
		return err
	}
	if err := d.writeUsed(layer); err != nil {
		return err
	}
	if err := d.use(snapshot, layer); err != nil {
		return err
	}
	return exchange(filepath.Join(snapshot, filesName), files)
}

func (d Dir) adopt(snapshot, layer string) (bool, error) {
	if !d.isComplete(layer) {
		return false, nil
	}
	if err := d.use(snapshot, layer); err != nil {
		return false, err
	}
	files, next := filepath.Join(snapshot, filesName), filepath.Join(snapshot, nextName)
	if err := os.RemoveAll(next); err != nil {
		return false, err
	}
	if err := os.Symlink(target(layer), next); err != nil {
		return false, err
	}
	if err := exchange(files, next); err != nil {
		return false, err
	}
	return true, os.RemoveAll(next)
}

// use counts a snapshot as one that uses a layer.
func (d Dir) use(snapshot, layer string) error {
	used := filepath.Join(snapshot, usedName)
	if err := os.Remove(used); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(d.path(layer, usedName), used)
}

// remove deletes a layer, the mark of a complete one first.
func (d Dir) remove(layer string) error {
	if err := os.Remove(d.path(layer, usedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(d.path(layer))
}

// isComplete reports whether a layer has all its files.
func (d Dir) isComplete(layer string) bool {
	_, err := os.Lstat(d.path(layer, usedName))
	files, filesErr := os.Lstat(d.path(layer, filesName))
	return err == nil && filesErr == nil && files.IsDir()
}

// isUsed reports whether a layer is complete, and used by a snapshot. Who uses it is not known after it was copied, for example to another
// disk without the links: such a layer counts as used.
func (d Dir) isUsed(layer string) bool {
	var used unix.Stat_t
	path := d.path(layer, usedName)
	if !d.isComplete(layer) || unix.Lstat(path, &used) != nil {
		return false
	}
	original, err := os.ReadFile(path)
	return err != nil || used.Nlink > 1 || string(original) != strconv.FormatUint(used.Ino, 10)
}

func (d Dir) writeUsed(layer string) error {
	path := d.path(layer, usedName)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	var used unix.Stat_t
	if err := unix.Lstat(path, &used); err != nil {
		return err
	}
	return os.WriteFile(path, strconv.AppendUint(nil, used.Ino, 10), 0o600)
}

func (d Dir) path(names ...string) string {
	return filepath.Join(append([]string{string(d)}, names...)...)
}

// locked calls a function while no other process changes the shared folder.
func (d Dir) locked(change func() error) error {
	lock, err := os.OpenFile(d.path(lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		if err == nil {
			return change()
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
	}
}

// Mountpoint is the name of the folder, beside that of the snapshots, where a node sees the shared folder.
const Mountpoint = "layers"

// target is the content of the link to a layer in a snapshot.
func target(layer string) string { return filepath.Join("..", "..", Mountpoint, layer, filesName) }

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// exchange has two files or folders change places at once.
func exchange(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}

// sync writes what the file system of a folder has in memory to the disk.
func sync(folder string) error {
	opened, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer opened.Close()
	return unix.Syncfs(int(opened.Fd()))
}
