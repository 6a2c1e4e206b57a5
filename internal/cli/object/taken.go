package object

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Taken returns the error of a create of an object whose name exists already. described is the object for the user, such as
// "Cluster demo", and remove the command that deletes it.
func Taken(ctx context.Context, c client.Reader, created client.Object, described, remove string) error {
	found := created.DeepCopyObject().(client.Object)
	err := c.Get(ctx, client.ObjectKeyFromObject(created), found)
	if apierrors.IsNotFound(err) || err == nil && !found.GetDeletionTimestamp().IsZero() {
		return fmt.Errorf("%s is being deleted; choose another name, or try again when it is gone", described)
	}
	return fmt.Errorf("%s exists already; choose another name, or delete it: %s", described, remove)
}
