package kube

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrForeign says that an object of that name exists and belongs to someone else.
var ErrForeign = errors.New("it exists and belongs to someone else")

// ByController returns an index function of children: the UID of the object of that
// kind that controls them.
func ByController(kind schema.GroupKind) client.IndexerFunc {
	return func(child client.Object) []string {
		if ref := controllerOf(child, kind); ref != nil {
			return []string{string(ref.UID)}
		}
		return nil
	}
}

// IsControlled reports whether an object of that kind controls child.
func IsControlled(child client.Object, kind schema.GroupKind) bool {
	return controllerOf(child, kind) != nil
}

// IsLeftover reports whether child belongs to an earlier owner of the same kind and
// name: one that is gone, so that the garbage collector is about to delete child.
func IsLeftover(child, owner client.Object, kind schema.GroupKind) bool {
	ref := controllerOf(child, kind)
	return ref != nil && ref.Name == owner.GetName() && ref.UID != owner.GetUID()
}

// WhyExists asks the API server about a child of owner that could not be created
// because there is one of its name, of which the cache does not know: ErrStale if
// owner has only to wait for the cache or for the garbage collector, ErrForeign if it
// belongs to someone else.
func WhyExists(ctx context.Context, live client.Reader, child schema.GroupVersionKind, name string, owner client.Object, kind schema.GroupKind) error {
	var found metav1.PartialObjectMetadata
	found.SetGroupVersionKind(child)
	err := live.Get(ctx, client.ObjectKey{Namespace: owner.GetNamespace(), Name: name}, &found)
	switch {
	case apierrors.IsNotFound(err):
		// Gone again.
		return ErrStale
	case err != nil:
		return err
	case metav1.IsControlledBy(&found, owner), IsLeftover(&found, owner, kind):
		return ErrStale
	default:
		return ErrForeign
	}
}

func controllerOf(child client.Object, kind schema.GroupKind) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(child)
	if ref == nil || ref.Kind != kind.Kind {
		return nil
	}
	if version, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || version.Group != kind.Group {
		return nil
	}
	return ref
}

func controllerUID(child client.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil {
		return ref.UID
	}
	return ""
}
