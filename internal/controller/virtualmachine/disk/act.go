package disk

import (
	"context"
	"fmt"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Delete implements external.Kind.
func (r *Reconciler) Delete(ctx context.Context, disk *v1alpha1.VirtualDisk, seen observation) error {
	if seen.store == nil {
		return nil
	}
	if err := seen.store.DeleteDisk(ctx, seen.id, disk.Spec.DeletePolicy == v1alpha1.DiskRetain); err != nil {
		return fmt.Errorf("delete the disk %s/%s: %w", disk.Namespace, disk.Name, err)
	}
	return nil
}

// Ensure implements external.Kind: it creates or grows the disk.
func (r *Reconciler) Ensure(ctx context.Context, disk *v1alpha1.VirtualDisk, seen observation) error {
	wanted := backend.VirtualDisk{DiskIdentity: seen.id, SizeBytes: sizeOf(disk)}
	if disk.Spec.From != nil {
		wanted.From = disk.Spec.From.VirtualDisk
	}
	isNew := seen.state == nil || !seen.state.Created
	if given := disk.Spec.Image; given != nil && isNew {
		wanted.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: given.Path, URL: given.URL, Sha256: given.Sha256, Format: given.Format}}
		if given.Name != "" {
			var err error
			if wanted.Image, err = image.Resolve(ctx, r.Live, given.Name, seen.host.Driver); err != nil {
				return err
			}
		}
	}
	if isNew {
		// A disk that is created for a stale cached object would be left over.
		var now v1alpha1.VirtualDisk
		if err := kube.CheckLive(ctx, r.Live, kind.Kind, disk, &now, func() bool { return !now.DeletionTimestamp.IsZero() }); err != nil {
			return err
		}
	}
	if err := seen.store.EnsureDisk(ctx, wanted); err != nil {
		return fmt.Errorf("create the disk %s/%s: %w", disk.Namespace, disk.Name, err)
	}
	return nil
}
