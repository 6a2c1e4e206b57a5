package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
)

var (
	// errImageMissing means that the VirtualMachineImage of spec.image.name does not exist.
	errImageMissing = errors.New("image is missing")
	// errImageNotReady means that it cannot be used yet.
	errImageNotReady = errors.New("image is not ready")
)

// resolveImage returns the image of a new machine: the source of the VirtualMachineImage, if given
// names one. The error is an errImageMissing or an errImageNotReady. The driver keeps the result, so a
// machine that exists depends on its VirtualMachineImage no longer.
func (r *Reconciler) resolveImage(ctx context.Context, given *v1alpha1.Image, driver string) (*v1alpha1.Image, error) {
	if given == nil || given.Name == "" {
		return given, nil
	}
	var named v1alpha1.VirtualMachineImage
	// Not from the cache: a manager of some namespaces has none of them.
	err := r.live.Get(ctx, client.ObjectKey{Name: given.Name}, &named)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no VirtualMachineImage %q; create it, see keelson vm image", errImageMissing, given.Name)
	}
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%w: this manager may not read the VirtualMachineImage %q, as one of some namespaces only; name a url or path: %w",
			errImageMissing, given.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("get the VirtualMachineImage %s: %w", given.Name, err)
	}
	ready := meta.FindStatusCondition(named.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return nil, fmt.Errorf("%w: the VirtualMachineImage %q was not imported yet", errImageNotReady, given.Name)
	case ready.Status != metav1.ConditionTrue:
		return nil, fmt.Errorf("%w: the VirtualMachineImage %q: %s: %s", errImageNotReady, given.Name, ready.Reason, ready.Message)
	case named.Status.Host != nil && named.Status.Host.Driver != driver:
		return nil, &backend.FieldError{Field: "spec.image.name", Message: fmt.Sprintf(
			"the driver %s has the image %s, and the driver of this machine is %s", named.Status.Host.Driver, given.Name, driver)}
	}
	return backend.NewImage(given.Name, named.Spec), nil
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
			ready := meta.FindStatusCondition(machines.Items[i].Status.Conditions, v1alpha1.ConditionReady)
			if ready != nil && strings.HasPrefix(ready.Reason, "Image") {
				waiting = append(waiting, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
			}
		}
		return waiting
	})
}

// ImageStore returns the driver that keeps images: the first one of the manager that can.
func (d *Drivers) ImageStore() (backend.ImageStore, v1alpha1.Host, error) {
	var first error
	for _, name := range d.names {
		driver, err := d.get(name)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		if store := imageStoreOf(driver); store != nil {
			host := driver.Host()
			return store, v1alpha1.Host{Driver: name, ID: host.ID, Name: host.Name}, nil
		}
	}
	if first == nil {
		first = fmt.Errorf("%w: --vm-driver=%s has no driver that keeps images; add qemu", backend.ErrMissing, strings.Join(d.names, ","))
	}
	return nil, v1alpha1.Host{}, first
}

// imageStoreOf returns the image store of a driver, nil if it is none.
func imageStoreOf(driver Driver) backend.ImageStore {
	if instrumented, ok := driver.(*instrumentedDriver); ok {
		driver = instrumented.Driver
	}
	store, _ := driver.(backend.ImageStore)
	return store
}

// WatchImages sets the function to call with the name of an image that has changed.
func (d *Drivers) WatchImages(notify func(name string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notifyImages = notify
}

// notifyImage forwards a change to the function set by WatchImages.
func (d *Drivers) notifyImage(name string) {
	d.mu.Lock()
	notify := d.notifyImages
	d.mu.Unlock()
	notify(name)
}
