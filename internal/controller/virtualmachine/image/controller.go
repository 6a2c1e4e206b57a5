// Package image reconciles VirtualMachineImages with the images of a driver of VirtualMachines.
package image

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics and events.
const Name = "virtualmachineimage"

var kind = v1alpha1.SchemeGroupVersion.WithKind("VirtualMachineImage")

// Store has the driver that keeps the images.
type Store interface {
	// ImageStore returns the driver, and its host. The error is a backend.ErrMissing if the manager
	// has no such driver, or a backend.ErrUnavailable if it cannot be opened now.
	ImageStore() (backend.ImageStore, v1alpha1.Host, error)
	// WatchImages sets the function to call with the name of an image that has changed.
	WatchImages(notify func(name string))
}

// Reconciler imports VirtualMachineImages.
type Reconciler struct {
	kube.Base
	store Store
}

// Indexes are the indexes that the controllers of images and machines use.
var Indexes = []kube.Index{{Object: &v1alpha1.VirtualMachine{}, Field: Field, Keys: imageOf}}

// Field is the index of VirtualMachines by the name of their VirtualMachineImage.
const Field = Name + ".spec.image.name"

// imageOf returns the name of the VirtualMachineImage of a VirtualMachine, if it has one.
func imageOf(object client.Object) []string {
	vm, ok := object.(*v1alpha1.VirtualMachine)
	if !ok || vm.Spec.Image == nil || vm.Spec.Image.Name == "" || vm.Spec.Image.Name == v1alpha1.ImageTiny {
		return nil
	}
	return []string{vm.Spec.Image.Name}
}

// Add adds the controller to a manager that watches all namespaces.
func Add(mgr ctrl.Manager, options controller.Options, store Store) error {
	if err := kube.AddIndexes(mgr.GetFieldIndexer(), Indexes...); err != nil {
		return err
	}
	r := &Reconciler{kube.BaseOf(mgr, kind, Name), store}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VirtualMachineImage{}).
		Watches(&v1alpha1.VirtualMachine{}, watchUsers()).
		WatchesRawSource(external.Changes(store.WatchImages, func(name string) client.ObjectKey { return client.ObjectKey{Name: name} }))
	return setup.Controller(mgr, Name, options, watches, r)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watchUsers enqueues the image of a machine that was created or is gone.
func watchUsers() handler.EventHandler {
	enqueue := func(machine client.Object, q queue) {
		for _, name := range imageOf(machine) {
			kube.Enqueue(q, kube.LowPriority, client.ObjectKey{Name: name})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(e.Object, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(e.Object, q) },
	}
}

// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachineimages,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachineimages/status,verbs=update
// +kubebuilder:rbac:groups=cloudnative.tw,resources=virtualmachines,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile imports an image, or removes it when no machine names it.
func (r *Reconciler) Reconcile(ctx context.Context, image *v1alpha1.VirtualMachineImage) (reconcile.Result, error) {
	return external.Reconcile[*v1alpha1.VirtualMachineImage, observation](ctx, r.Base, r, image)
}

// observation is the state that a reconcile is based on.
type observation struct {
	// users are the machines that name the image, as namespace/name, sorted.
	users []string
	// store is nil if there is none because of err.
	store backend.ImageStore
	host  v1alpha1.Host
	// state is nil if the store has neither the image nor an attempt to import it.
	state *backend.ImageState
	err   error
}

// Observe implements external.Kind: it finds the users of an image and asks the driver for its state. A returned error is one of
// the API.
func (r *Reconciler) Observe(ctx context.Context, image *v1alpha1.VirtualMachineImage) (observation, error) {
	var seen observation
	var machines v1alpha1.VirtualMachineList
	if err := r.Client.List(ctx, &machines, client.MatchingFields{Field: image.Name}); err != nil {
		return seen, fmt.Errorf("list the VirtualMachines of the image %s: %w", image.Name, err)
	}
	for i := range machines.Items {
		seen.users = append(seen.users, machines.Items[i].Namespace+"/"+machines.Items[i].Name)
	}
	slices.Sort(seen.users)
	if seen.store, seen.host, seen.err = r.store.ImageStore(); seen.err != nil {
		seen.store = nil
		return seen, nil
	}
	ctx, cancel := external.Call(ctx)
	defer cancel()
	seen.state, seen.err = external.Found(seen.store.ObserveImage(ctx, identify(image)))
	return seen, nil
}

func identify(image *v1alpha1.VirtualMachineImage) backend.ImageIdentity {
	return backend.ImageIdentity{UID: image.UID, Name: image.Name}
}
