package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

const (
	// partialSuffix follows the name of an object in the name of a file that is not complete. Each attempt has its own.
	partialSuffix = ".partial-"
	// responseTimeout is how long a file system has to respond. One of a server that is away responds never.
	responseTimeout = 10 * time.Second
)

// dir is a directory. It is never created: a file system that is not mounted must not look like an empty store.
type dir struct {
	root string
	// looking has one element while a look at the directory is in progress, which may hang.
	looking chan struct{}
}

func checkDir(location string) error {
	switch {
	case strings.Contains(location, "://"):
		return errors.New("snapshotStore.location: must be the absolute path of a directory, or s3://BUCKET/PREFIX")
	case !filepath.IsAbs(location):
		return errors.New("snapshotStore.location: must be an absolute path, or s3://BUCKET/PREFIX")
	case filepath.Clean(location) == "/":
		return errors.New("snapshotStore.location: must be a directory of its own")
	}
	return nil
}

func newDir(location string) *dir {
	return &dir{root: filepath.Clean(location), looking: make(chan struct{}, 1)}
}

// Location implements Store.
func (d *dir) Location(name string) string { return d.path(name) }

func (d *dir) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

// check returns an error if the directory is missing or does not respond.
func (d *dir) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	silent := fmt.Errorf("the directory %s does not respond: check the server of its file system", d.root)
	select {
	case d.looking <- struct{}{}:
	case <-ctx.Done():
		return silent
	}
	result := make(chan error, 1)
	go func() {
		defer func() { <-d.looking }()
		info, err := os.Stat(d.root)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", d.root)
		}
		result <- err
	}()
	select {
	case err := <-result:
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no directory %s: mount its file system, or create it", d.root)
		}
		return err
	case <-ctx.Done():
		return silent
	}
}

// Put implements Store.
func (d *dir) Put(ctx context.Context, name string, content io.Reader, size int64) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	path := d.path(name)
	if err := d.makeParents(filepath.Dir(path)); err != nil {
		return err
	}
	if err := removePartial(path); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+partialSuffix) // mode 0600
	if err != nil {
		return err
	}
	written, err := io.Copy(file, &contextReader{ctx: ctx, Reader: content})
	if err == nil && written != size {
		err = fmt.Errorf("%s has %d bytes instead of %d", name, written, size)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// makeParents makes a directory below the root and those above it, mode 0700, and makes their names durable.
func (d *dir) makeParents(path string) error {
	if path == d.root {
		return nil
	}
	if err := d.makeParents(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(path))
}

// Get implements Store.
func (d *dir) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := d.check(ctx); err != nil {
		return nil, err
	}
	file, err := os.Open(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, d.path(name))
	}
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&contextReader{ctx: ctx, Reader: file}, file}, nil
}

// Delete implements Store. It also deletes the directories that become empty.
func (d *dir) Delete(ctx context.Context, name string) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	path := d.path(name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := removePartial(path); err != nil {
		return err
	}
	for parent := filepath.Dir(path); parent != d.root; parent = filepath.Dir(parent) {
		if os.Remove(parent) != nil {
			break // it has other objects
		}
	}
	return nil
}

// removePartial deletes what Puts that were interrupted have left of an object.
func removePartial(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), filepath.Base(path)+partialSuffix) {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), entry.Name())))
		}
	}
	return err
}

// contextReader ends with the error of its context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
