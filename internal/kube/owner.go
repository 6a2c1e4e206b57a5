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

// ErrNotOwned means that an object with this name exists and has another owner.
var ErrNotOwned = errors.New("it exists and has another owner")

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

// IsLeftover reports whether child belongs to an earlier owner with the same kind and
// name. That owner no longer exists, so the garbage collector will delete child.
func IsLeftover(child, owner client.Object, kind schema.GroupKind) bool {
	ref := controllerOf(child, kind)
	return ref != nil && ref.Name == owner.GetName() && ref.UID != owner.GetUID()
}

// classifyAlreadyExists handles an AlreadyExists error for a child of owner that is not in the
// cache. It reads the existing object from the API server and returns ErrStale if the cache or
// the garbage collector will catch up, or ErrNotOwned if the object has another owner.
func classifyAlreadyExists(ctx context.Context, live client.Reader, child schema.GroupVersionKind, name string, owner client.Object, kind schema.GroupKind) error {
	var found metav1.PartialObjectMetadata
	found.SetGroupVersionKind(child)
	err := live.Get(ctx, client.ObjectKey{Namespace: owner.GetNamespace(), Name: name}, &found)
	switch {
	case apierrors.IsNotFound(err):
		// It was deleted in the meantime.
		return ErrStale
	case err != nil:
		return err
	case metav1.IsControlledBy(&found, owner), IsLeftover(&found, owner, kind):
		return ErrStale
	default:
		return ErrNotOwned
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
