package image

import (
	"context"
	"fmt"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// Ensure implements external.Kind: it begins the import.
func (r *Reconciler) Ensure(ctx context.Context, image *v1alpha1.VirtualMachineImage, seen observation) error {
	if err := seen.store.ImportImage(ctx, identify(image), image.Spec); err != nil {
		return fmt.Errorf("import the image %s: %w", image.Name, err)
	}
	return nil
}

// Delete implements external.Kind.
func (r *Reconciler) Delete(ctx context.Context, image *v1alpha1.VirtualMachineImage, seen observation) error {
	if seen.store == nil {
		return nil
	}
	if err := seen.store.ReleaseImage(ctx, identify(image)); err != nil {
		return fmt.Errorf("remove the image %s: %w", image.Name, err)
	}
	return nil
}
