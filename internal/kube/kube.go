// Package kube contains what all controllers share: deleting exactly one object, writing a status, recording
// events, finding children by their owner, and classifying API errors. It does not depend on Keelson's kinds.
package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// FieldManager is the field manager of the controllers.
const FieldManager = "keelson"

// Delete deletes obj, but not a later object with its name. It returns nil if obj no longer
// exists. The garbage collector deletes the children of obj in the background.
func Delete(ctx context.Context, c client.Writer, obj client.Object) error {
	err := c.Delete(ctx, obj,
		client.Preconditions{UID: ptr.To(obj.GetUID())},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if IsStale(err) {
		// Another object has the name now, so obj no longer exists.
		return nil
	}
	return client.IgnoreNotFound(err)
}

// ClusterUID returns the UID of the namespace kube-system, which by convention identifies a cluster. live must not be a cache,
// which would have to watch namespaces.
func ClusterUID(ctx context.Context, live client.Reader) (types.UID, error) {
	var namespace corev1.Namespace
	if err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		return "", fmt.Errorf("get Namespace %s, whose UID identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	return namespace.UID, nil
}

// ClusterIdentity is the UID of a cluster, see ClusterUID, which is read once. It is for several goroutines.
type ClusterIdentity struct {
	live client.Reader

	mu  sync.Mutex
	uid types.UID
}

// NewClusterIdentity returns the identity of the cluster that live reads from.
func NewClusterIdentity(live client.Reader) *ClusterIdentity { return &ClusterIdentity{live: live} }

// UID returns the UID. The error is one of the API.
func (c *ClusterIdentity) UID(ctx context.Context) (types.UID, error) {
	c.mu.Lock()
	known := c.uid
	c.mu.Unlock()
	if known != "" {
		return known, nil
	}
	uid, err := ClusterUID(ctx, c.live)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uid = uid
	return uid, nil
}

// AddFinalizer adds a finalizer to an object, unless the object has changed. It is no error if the object is gone.
func AddFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	return changeFinalizers(ctx, c, object, func() bool { return controllerutil.AddFinalizer(object, finalizer) })
}

// RemoveFinalizer removes a finalizer from an object, unless the object has changed. It is no error if the object is gone.
func RemoveFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	return changeFinalizers(ctx, c, object, func() bool { return controllerutil.RemoveFinalizer(object, finalizer) })
}

// changeFinalizers writes a change of the finalizers of an object. With the optimistic lock, nothing follows from a stale object.
func changeFinalizers(ctx context.Context, c client.Client, object client.Object, change func() bool) error {
	before := object.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, object, patch, client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the finalizers of %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// Earlier returns the earlier of two times. The zero time does not count.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Seconds returns the seconds between two times for a histogram, at least 0. The times may come from different clocks (the API
// server's and this host's) or from a clock that was set back, and the sum of a histogram must not decrease: Prometheus takes a
// decrease for a restart of the process.
func Seconds(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

// Elapsed returns the time between two readings of a clock, by the wall clock or the monotonic clock, whichever is longer. The
// wall clock can be set back, and the monotonic clock, which Sub prefers, stops while the host is suspended. Use it where a
// process must notice that others may have acted in the meantime.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// GetNew reads an object from a cache, or from live if the cache does not have it: a user may have created it just now.
func GetNew(ctx context.Context, cache, live client.Reader, key client.ObjectKey, object client.Object) error {
	err := cache.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		err = live.Get(ctx, key, object)
	}
	return err
}
