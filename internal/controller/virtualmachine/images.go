package virtualmachine

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
)

// resolveImage returns the image of a new machine: the source of the VirtualMachineImage, if given
// names one. The error is an image.ErrMissing or an image.ErrNotReady. The driver keeps the result, so a
// machine that exists depends on its VirtualMachineImage no longer.
func (r *Reconciler) resolveImage(ctx context.Context, given *v1alpha1.Image, driver string) (*v1alpha1.Image, error) {
	if given == nil || given.Name == "" {
		return given, nil
	}
	return image.Resolve(ctx, r.Live, given.Name, driver)
}

// watchImages enqueues the machines that wait for an image.
func watchImages(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var machines v1alpha1.VirtualMachineList
		if err := c.List(ctx, &machines, client.MatchingFields{image.Field: object.GetName()}); err != nil {
			return nil // the next attempt of each machine comes by itself
		}
		var waiting []reconcile.Request
		for i := range machines.Items {
			synchronized := meta.FindStatusCondition(machines.Items[i].Status.Conditions, v1alpha1.ConditionSynchronized)
			if synchronized != nil && strings.HasPrefix(synchronized.Reason, "Image") {
				waiting = append(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
			}
		}
		return waiting
	})
}

// ImageStore returns the driver that keeps images: the first one of the manager that can.
func (d *Drivers) ImageStore() (backend.ImageStore, v1alpha1.Host, error) {
	return storeIn[backend.ImageStore](d, "", "images")
}

// WatchImages sets the function to call with the name of an image that has changed.
func (d *Drivers) WatchImages(notify func(name string)) { d.images.Watch(notify) }
