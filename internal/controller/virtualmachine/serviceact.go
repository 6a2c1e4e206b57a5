package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// serviceObjects are the Service and the EndpointSlice with the name of a machine and our label. They are shared with the
// cache and must not be modified.
type serviceObjects struct {
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
}

// ownedBy returns those that a machine controls and that are not being deleted.
func (s serviceObjects) ownedBy(vm *v1alpha1.VirtualMachine) []client.Object {
	var owned []client.Object
	if s.service != nil && metav1.IsControlledBy(s.service, vm) && s.service.DeletionTimestamp.IsZero() {
		owned = append(owned, s.service)
	}
	if s.slice != nil && metav1.IsControlledBy(s.slice, vm) && s.slice.DeletionTimestamp.IsZero() {
		owned = append(owned, s.slice)
	}
	return owned
}

// observeService reads the objects from the cache.
func (r *Reconciler) observeService(ctx context.Context, vm *v1alpha1.VirtualMachine, observed *observation) error {
	key := client.ObjectKeyFromObject(vm)
	service, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	switch err := r.Client.Get(ctx, key, service, client.UnsafeDisableDeepCopy); {
	case err == nil:
		observed.service.service = service
	case !apierrors.IsNotFound(err):
		return kube.Named(err, "get", "Service", vm.Namespace, vm.Name)
	}
	switch err := r.Client.Get(ctx, key, slice, client.UnsafeDisableDeepCopy); {
	case err == nil:
		observed.service.slice = slice
	case !apierrors.IsNotFound(err):
		return kube.Named(err, "get", "EndpointSlice", vm.Namespace, vm.Name)
	}
	return nil
}

// actOnService carries out the plan. The endpoint goes before the Service, and comes after it.
func (r *Reconciler) actOnService(ctx context.Context, vm *v1alpha1.VirtualMachine, seen serviceObjects, plan servicePlan) error {
	for _, object := range plan.write {
		err := r.writeService(ctx, vm, seen, object)
		var taken *takenError
		if errors.As(err, &taken) && seen.slice != nil && metav1.IsControlledBy(seen.slice, vm) {
			// The Service of somebody else must not lead to this machine.
			err = errors.Join(err, kube.Delete(ctx, r.Client, seen.slice))
		}
		if err != nil {
			return err
		}
	}
	for i := range plan.remove {
		object := plan.remove[len(plan.remove)-1-i]
		if err := kube.Delete(ctx, r.Client, object); err != nil {
			return kube.Named(err, "delete", kindOf(object), object.GetNamespace(), object.GetName())
		}
		log.FromContext(ctx).Info("Deleted "+kindOf(object), "name", object.GetName())
	}
	return nil
}

// writeService creates or changes one of the objects. It changes no object of another owner.
func (r *Reconciler) writeService(ctx context.Context, vm *v1alpha1.VirtualMachine, seen serviceObjects, wanted client.Object) error {
	present := seen.like(wanted)
	if present == nil {
		err := r.Client.Create(ctx, wanted, client.FieldOwner(kube.FieldManager))
		if !apierrors.IsAlreadyExists(err) {
			return kube.Named(err, "create", kindOf(wanted), vm.Namespace, vm.Name)
		}
		// The cache is behind, or the object has not our label.
		present = emptyLike(wanted)
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(vm), present); err != nil {
			return kube.Named(err, "get", kindOf(wanted), vm.Namespace, vm.Name)
		}
	}
	switch {
	case kube.IsLeftover(present, vm, kind.GroupKind()), metav1.IsControlledBy(present, vm) && !present.GetDeletionTimestamp().IsZero():
		return fmt.Errorf("the %s of an earlier machine with this name is being deleted", kindOf(wanted))
	case !metav1.IsControlledBy(present, vm):
		return &takenError{kind: kindOf(wanted)}
	}
	changed := present.DeepCopyObject().(client.Object)
	adopt(changed, wanted)
	// The version is a precondition, and with it the owner.
	patch := client.MergeFromWithOptions(present, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(kube.FieldManager))
	return kube.Named(err, "patch", kindOf(wanted), vm.Namespace, vm.Name)
}

// like returns the object of the type of wanted; nil if there is none.
func (s serviceObjects) like(wanted client.Object) client.Object {
	switch {
	case kindOf(wanted) == "Service" && s.service != nil:
		return s.service
	case kindOf(wanted) == "EndpointSlice" && s.slice != nil:
		return s.slice
	}
	return nil
}

func kindOf(object client.Object) string {
	if _, ok := object.(*corev1.Service); ok {
		return "Service"
	}
	return "EndpointSlice"
}

func emptyLike(object client.Object) client.Object {
	if _, ok := object.(*corev1.Service); ok {
		return &corev1.Service{}
	}
	return &discoveryv1.EndpointSlice{}
}

// adopt copies what we decide from wanted.
func adopt(object, wanted client.Object) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, wanted.GetLabels())
	object.SetLabels(labels)
	switch o := object.(type) {
	case *corev1.Service:
		o.Spec.Selector, o.Spec.Ports = nil, wanted.(*corev1.Service).Spec.Ports
	case *discoveryv1.EndpointSlice:
		o.Endpoints, o.Ports = wanted.(*discoveryv1.EndpointSlice).Endpoints, wanted.(*discoveryv1.EndpointSlice).Ports
	}
}
