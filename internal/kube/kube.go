// Package kube has what all controllers do alike with Kubernetes objects: delete
// exactly one, write a status, record an event, find children by their owner, tell
// errors apart. It knows no domain words.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// ClusterUID returns what identifies the cluster of an API: by convention the UID of the namespace kube-system, which lives
// as long as the cluster does. The reader must not be a cache, which would need to watch namespaces.
func ClusterUID(ctx context.Context, live client.Reader) (types.UID, error) {
	var namespace corev1.Namespace
	if err := live.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		return "", fmt.Errorf("get Namespace %s, whose UID identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	return namespace.UID, nil
}

// Seconds returns the seconds from one time to another, for a histogram. Two clocks may have told them, that of the API server
// and that of this host, or one that was set back: what comes out negative is 0, because the sum of a histogram must not fall
// (Prometheus takes that for a restart of the process).
func Seconds(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

// Elapsed returns how much time passed between two readings of a clock: by the wall clock or the monotonic one, whichever says
// more. The wall clock can be set back; the monotonic one, which Sub prefers, stands still while the machine is suspended. It is
// for a process that must notice that others may have acted meanwhile.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
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
