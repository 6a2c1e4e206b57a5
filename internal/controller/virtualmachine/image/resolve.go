package image

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

var (
	// ErrMissing means that there is no VirtualMachineImage of that name.
	ErrMissing = errors.New("image is missing")
	// ErrNotReady means that the VirtualMachineImage cannot be used yet.
	ErrNotReady = errors.New("image is not ready")
)

// Resolve returns the source of a VirtualMachineImage for a new machine or disk of a driver. It reads from live, the API
// server: the cache of a manager of some namespaces has none of them. The error is an ErrMissing, an ErrNotReady or a
// backend.FieldError.
func Resolve(ctx context.Context, live client.Reader, name, driver string) (*v1alpha1.Image, error) {
	var named v1alpha1.VirtualMachineImage
	err := live.Get(ctx, client.ObjectKey{Name: name}, &named)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: there is no VirtualMachineImage %q; create it, see keelson vm image", ErrMissing, name)
	}
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%w: this manager may not read the VirtualMachineImage %q, as one of some namespaces only; name a url or path: %w",
			ErrMissing, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("get the VirtualMachineImage %s: %w", name, err)
	}
	ready := meta.FindStatusCondition(named.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return nil, fmt.Errorf("%w: the VirtualMachineImage %q was not imported yet", ErrNotReady, name)
	case ready.Status != metav1.ConditionTrue:
		return nil, fmt.Errorf("%w: the VirtualMachineImage %q: %s: %s", ErrNotReady, name, ready.Reason, ready.Message)
	case named.Status.Host != nil && named.Status.Host.Driver != driver:
		return nil, &backend.FieldError{Field: "spec.image.name", Message: fmt.Sprintf(
			"the driver %s has the image %s, and this one needs it in the driver %s", named.Status.Host.Driver, name, driver)}
	}
	return backend.NewImage(name, named.Spec), nil
}
