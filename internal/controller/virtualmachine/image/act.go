package image

import (
	"context"
	"fmt"
	"slices"

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
		return kube.SetFinalizers(ctx, r.client, image, append(slices.Clone(image.Finalizers), v1alpha1.ImageFinalizer))
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
		return kube.SetFinalizers(ctx, r.client, image, slices.DeleteFunc(slices.Clone(image.Finalizers), func(f string) bool { return f == v1alpha1.ImageFinalizer }))
	}
	return nil
}
