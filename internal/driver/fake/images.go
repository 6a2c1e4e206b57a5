package fake

import (
	"context"
	"fmt"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// WatchImages implements backend.ImageStore. Imports complete at once.
func (d *Driver) WatchImages(func(name string)) {}

// ObserveImage implements backend.ImageStore.
func (d *Driver) ObserveImage(_ context.Context, id backend.ImageIdentity) (backend.ImageState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.images[id.UID] {
		return backend.ImageState{}, fmt.Errorf("image %s: %w", id.Name, backend.ErrNotFound)
	}
	return backend.ImageState{Ready: true, Format: "raw"}, nil
}

// ImportImage implements backend.ImageStore. It downloads nothing.
func (d *Driver) ImportImage(_ context.Context, id backend.ImageIdentity, source v1alpha1.VirtualMachineImageSpec) error {
	if source.Path != "" {
		return &backend.FieldError{Field: "spec.path", Message: "the driver fake has no files"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images[id.UID] = true
	return nil
}

// ReleaseImage implements backend.ImageStore.
func (d *Driver) ReleaseImage(_ context.Context, id backend.ImageIdentity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.images, id.UID)
	return nil
}
