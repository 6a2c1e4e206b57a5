package disk

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act carries out the plan.
func (r *Reconciler) act(ctx context.Context, disk *v1alpha1.VirtualDisk, seen observation, p plan) error {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch p.action {
	case claim:
		if slices.Contains(disk.Finalizers, v1alpha1.DiskFinalizer) {
			return nil // the status records the host
		}
		return kube.SetFinalizers(ctx, r.client, disk, append(slices.Clone(disk.Finalizers), v1alpha1.DiskFinalizer))
	case ensure:
		return r.ensure(calling, disk, seen)
	case remove:
		if seen.store != nil {
			if err := seen.store.DeleteDisk(calling, seen.id, disk.Spec.DeletePolicy == v1alpha1.DiskRetain); err != nil {
				return fmt.Errorf("delete the disk %s/%s: %w", disk.Namespace, disk.Name, err)
			}
		}
		log.FromContext(ctx).Info("Deleted the disk")
		return kube.SetFinalizers(ctx, r.client, disk, slices.DeleteFunc(slices.Clone(disk.Finalizers), func(f string) bool { return f == v1alpha1.DiskFinalizer }))
	}
	return nil
}

// ensure creates or grows the disk.
func (r *Reconciler) ensure(ctx context.Context, disk *v1alpha1.VirtualDisk, seen observation) error {
	wanted := backend.VirtualDisk{DiskIdentity: seen.id, SizeBytes: sizeOf(disk)}
	if disk.Spec.From != nil {
		wanted.From = disk.Spec.From.VirtualDisk
	}
	isNew := seen.state == nil || !seen.state.Created
	if given := disk.Spec.Image; given != nil && isNew {
		wanted.Image = &v1alpha1.Image{Path: given.Path, URL: given.URL, Sha256: given.Sha256, Format: given.Format}
		if given.Name != "" {
			var err error
			if wanted.Image, err = image.Resolve(ctx, r.live, given.Name, seen.host.Driver); err != nil {
				return err
			}
		}
	}
	if isNew {
		// A disk that is created for a stale cached object would be left over.
		var now v1alpha1.VirtualDisk
		if err := kube.CheckLive(ctx, r.live, kind.Kind, disk, &now, func() bool { return !now.DeletionTimestamp.IsZero() }); err != nil {
			return err
		}
	}
	if err := seen.store.EnsureDisk(ctx, wanted); err != nil {
		return fmt.Errorf("create the disk %s/%s: %w", disk.Namespace, disk.Name, err)
	}
	return nil
}
