// Package kube has what all controllers do alike with Kubernetes objects: delete
// exactly one, write a status, record an event, find children by their owner, tell
// errors apart. It knows no domain words.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FieldManager is the name under which the controllers write.
const FieldManager = "keelson"

// Delete deletes obj and no later object of its name. What is gone already counts
// as deleted. What obj owns goes in the background.
func Delete(ctx context.Context, c client.Writer, obj client.Object) error {
	err := c.Delete(ctx, obj,
		client.Preconditions{UID: ptr.To(obj.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if IsStale(err) {
		// Another object has the name now, so the one that was meant is gone.
		return nil
	}
	return client.IgnoreNotFound(err)
}

// IsLeftover reports whether child belongs to an earlier owner of the same kind and
// name: one that is gone, so that the garbage collector is about to delete child.
func IsLeftover(child, owner client.Object, kind schema.GroupVersionKind) bool {
	ref := controllerOf(child, kind.GroupKind())
	return ref != nil && ref.Name == owner.GetName() && ref.UID != owner.GetUID()
}

// ControllerName returns the name of the object of that kind that controls child,
// or "" if none does.
func ControllerName(child client.Object, kind schema.GroupKind) string {
	if ref := controllerOf(child, kind); ref != nil {
		return ref.Name
	}
	return ""
}

// ControllerUID returns the UID of the object that controls child, or "" if none does.
func ControllerUID(child client.Object) types.UID {
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil {
		return ref.UID
	}
	return ""
}

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

// Shorten returns name if it has at most limit characters. A longer one is cut, and
// a hash of the whole keeps it distinct. limit must be more than 11.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	const hashed = 10
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%s", name[:limit-hashed-1], hex.EncodeToString(sum[:])[:hashed])
}
