package image

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act carries out the plan.
func (r *Reconciler) act(ctx context.Context, image *v1alpha1.VirtualMachineImage, seen observation, p plan) error {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch p.action {
	case claim:
		return r.setFinalizers(ctx, image, append(slices.Clone(image.Finalizers), v1alpha1.ImageFinalizer))
	case fetch:
		if err := seen.store.ImportImage(calling, identify(image), image.Spec); err != nil {
			return fmt.Errorf("import the image %s: %w", image.Name, err)
		}
	case remove:
		if seen.store != nil {
			if err := seen.store.ReleaseImage(calling, identify(image)); err != nil {
				return fmt.Errorf("remove the image %s: %w", image.Name, err)
			}
		}
		log.FromContext(ctx).Info("Removed the image")
		return r.setFinalizers(ctx, image, slices.DeleteFunc(slices.Clone(image.Finalizers), func(f string) bool { return f == v1alpha1.ImageFinalizer }))
	}
	return nil
}

// setFinalizers changes the finalizers, unless the object has changed.
func (r *Reconciler) setFinalizers(ctx context.Context, image *v1alpha1.VirtualMachineImage, finalizers []string) error {
	before := image.DeepCopy()
	image.Finalizers = finalizers
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, image, patch, client.FieldOwner(kube.FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the finalizers of the image %s: %w", image.Name, err)
	}
	return nil
}
