package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/operation"
)

// importedImage is an image that is being imported, or was imported since the driver was opened. It
// is not persisted: the controller repeats the import, which finds the file.
type importedImage struct {
	source v1alpha1.VirtualMachineImageSpec
	work   operation.Slot
	// state and path are set when it is ready.
	state backend.ImageState
	path  string
}

// WatchImages implements backend.ImageStore.
func (d *Driver) WatchImages(notify func(name string)) { d.imageWatcher.Watch(notify) }

// ObserveImage implements backend.ImageStore.
func (d *Driver) ObserveImage(_ context.Context, id backend.ImageIdentity) (backend.ImageState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	image := d.imports[id.UID]
	if image == nil || image.isLost() {
		return backend.ImageState{}, fmt.Errorf("image %s: %w", id.Name, backend.ErrNotFound)
	}
	state := image.state
	_, state.Progress = image.work.State()
	state.FailedAt, state.Failure = image.work.Failure(backend.TaskCreate)
	return state, nil
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
	if before := d.imports[id.UID]; before != nil && !before.isLost() {
		if _, failure := before.work.Failure(backend.TaskCreate); failure == nil {
			return nil
		}
	}
	image := &importedImage{source: source}
	d.imports[id.UID] = image
	return image.work.Begin(d.ctx, &d.tasks, operation.Work{
		Kind: backend.TaskCreate, Changed: func() { d.imageWatcher.Notify(id.Name) },
		Do: func(ctx context.Context) error { return d.importImage(ctx, id, image) },
	})
}

// importImage imports an image.
func (d *Driver) importImage(ctx context.Context, id backend.ImageIdentity, image *importedImage) error {
	base, err := d.resolveImage(ctx, "", backend.NewImage(id.Name, image.source), func(progress string) {
		if image.work.SetProgress(progress) {
			d.imageWatcher.Notify(id.Name)
		}
	})
	if err != nil {
		return err
	}
	info, err := d.inspect(ctx, base.Path, base.Format)
	if err != nil {
		return fmt.Errorf("read the image: %w", err)
	}
	file, err := os.Stat(base.Path)
	if err != nil {
		return err
	}
	allocated := file.Size()
	if stat, ok := file.Sys().(*syscall.Stat_t); ok {
		allocated = stat.Blocks * 512
	}
	step("image imported")
	d.mu.Lock()
	defer d.mu.Unlock()
	image.path = base.Path
	image.state = backend.ImageState{Ready: true, Format: base.Format, AllocatedBytes: allocated, VirtualBytes: info.VirtualSize}
	return nil
}

// ReleaseImage implements backend.ImageStore. A file below virtualMachines.imageDirs is not removed.
func (d *Driver) ReleaseImage(_ context.Context, id backend.ImageIdentity) error {
	d.mu.Lock()
	image := d.imports[id.UID]
	if image != nil {
		image.work.Cancel()
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
