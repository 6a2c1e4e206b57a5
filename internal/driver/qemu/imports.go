package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// importedImage is an image that is being imported, or was imported since the driver was opened. It
// is not persisted: the controller repeats the import, which finds the file.
type importedImage struct {
	source v1alpha1.VirtualMachineImageSpec
	state  backend.ImageState
	path   string // set if the state is ready
	cancel context.CancelFunc
}

// WatchImages implements backend.ImageStore.
func (d *Driver) WatchImages(notify func(name string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notifyImage = notify
}

// ObserveImage implements backend.ImageStore.
func (d *Driver) ObserveImage(_ context.Context, id backend.ImageIdentity) (backend.ImageState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	image := d.imports[id.UID]
	if image == nil || image.isLost() {
		return backend.ImageState{}, fmt.Errorf("image %s: %w", id.Name, backend.ErrNotFound)
	}
	return image.state, nil
}

// isLost reports whether the file of an imported image was removed.
func (i *importedImage) isLost() bool {
	if !i.state.Ready {
		return false
	}
	_, err := os.Stat(i.path)
	return errors.Is(err, fs.ErrNotExist)
}

// ImportImage implements backend.ImageStore.
func (d *Driver) ImportImage(_ context.Context, id backend.ImageIdentity, source v1alpha1.VirtualMachineImageSpec) error {
	if err := d.checkFiles(backend.NewImage(id.Name, source)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("driver qemu is closed: %w", backend.ErrUnavailable)
	}
	if before := d.imports[id.UID]; before != nil && before.state.Failure == nil && !before.isLost() {
		return nil
	}
	ctx, cancel := context.WithCancel(d.ctx)
	image := &importedImage{source: source, cancel: cancel}
	d.imports[id.UID] = image
	d.tasks.Go(func() {
		defer cancel()
		path, state := d.importImage(ctx, id, image)
		d.mu.Lock()
		image.path, image.state = path, state
		d.mu.Unlock()
		d.notifyImageChange(id)
	})
	return nil
}

// importImage imports an image, and returns its path and the final state.
func (d *Driver) importImage(ctx context.Context, id backend.ImageIdentity, image *importedImage) (string, backend.ImageState) {
	failed := func(err error) (string, backend.ImageState) {
		return "", backend.ImageState{Failure: err, FailedAt: time.Now()}
	}
	base, err := d.resolveImage(ctx, "", backend.NewImage(id.Name, image.source), func(progress string) {
		d.mu.Lock()
		image.state.Progress = progress
		d.mu.Unlock()
		d.notifyImageChange(id)
	})
	if err != nil {
		return failed(err)
	}
	info, err := d.inspect(ctx, base.Path, base.Format)
	if err != nil {
		return failed(fmt.Errorf("read the image: %w", err))
	}
	file, err := os.Stat(base.Path)
	if err != nil {
		return failed(err)
	}
	allocated := file.Size()
	if stat, ok := file.Sys().(*syscall.Stat_t); ok {
		allocated = stat.Blocks * 512
	}
	step("image imported")
	return base.Path, backend.ImageState{Ready: true, Format: base.Format, AllocatedBytes: allocated, VirtualBytes: info.VirtualSize}
}

// notifyImageChange notifies the controller of a change of an image.
func (d *Driver) notifyImageChange(id backend.ImageIdentity) {
	d.mu.Lock()
	notify := d.notifyImage
	d.mu.Unlock()
	notify(id.Name)
}

// ReleaseImage implements backend.ImageStore. A file below virtualMachines.imageDirs is not removed.
func (d *Driver) ReleaseImage(_ context.Context, id backend.ImageIdentity) error {
	d.mu.Lock()
	image := d.imports[id.UID]
	if image != nil {
		image.cancel()
		delete(d.imports, id.UID)
	}
	d.mu.Unlock()
	if image == nil || image.source.Sha256 == "" {
		return nil
	}
	return d.images.remove(image.source.Sha256, d.imagesInUse)
}

// remove removes an image unless it is in use. What excludes it from collect excludes it here.
func (i *images) remove(digest string, inUse func() *imageUse) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	path := filepath.Join(i.dir, digest)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	used := inUse()
	if err := errors.Join(used.unknown...); err != nil || used.files.has(info) {
		return err
	}
	return os.Remove(path)
}

// addImportedFiles adds the files of imported images, also of those that are being imported.
func (d *Driver) addImportedFiles(used *imageUse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, image := range d.imports {
		if image.source.Sha256 != "" {
			used.add(filepath.Join(d.imagesDir(), image.source.Sha256))
		}
	}
}
