package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/requests"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// observation is the observed state of a cluster, in the API and outside.
type observation struct {
	// engine is the engine of the Cluster; outside is its observation, and err its error.
	engine  v1alpha1.Engine
	outside Observation
	err     error
	// stop is whether the cluster is not to run, see decideStop.
	stop stop
	// snapshot is the snapshot of spec.from.
	snapshot SnapshotRef
	// probe is the last probe of the cluster's API; nil if there was none.
	probe *Probe
	// invalid is the error in the kubeconfig of the engine, if any.
	invalid error
	// secret and kubeconfig are the objects with the names of the children; nil if they do not exist.
	secret     *corev1.Secret
	kubeconfig *v1alpha1.Kubeconfig
	// users are the Secrets of users, by the names of these. See observeUsers.
	users map[string]*corev1.Secret
	// restore is what spec.restore needs.
	restore restoreSeen
	// scheduled are the ClusterSnapshots that spec.snapshots has made.
	scheduled []snapshots.Snapshot
	// namespace is the namespace of the Secrets.
	namespace string
}

// newRequest returns the Request for a Cluster.
func newRequest(cluster *v1alpha1.Cluster) Request {
	request := Request{
		Name: cluster.Name, UID: cluster.UID, Spec: *cluster.Spec.DeepCopy(),
		Rotation: requests.Token(cluster.Spec.RotateRequestedAt),
		Deleting: !cluster.DeletionTimestamp.IsZero(),
		Applied:  cluster.Status.AppliedConfigHash, AppliedConfig: cluster.Status.AppliedConfig,
	}
	if request.Applied == "" && request.AppliedConfig != "" {
		request.Applied = "unknown" // stored by the original controller, which had no hash
	}
	request.Spec.Engine = cluster.Spec.EngineOrDefault()
	keepRotations(request.Spec.Users, cluster.Status.Users)
	return request
}

func (r *Reconciler) observe(ctx context.Context, cluster *v1alpha1.Cluster) (observation, error) {
	seen := observation{engine: cluster.Spec.EngineOrDefault(), namespace: r.SecretNamespace}
	seen.stop = decideStop(cluster, seen, r.Clock.Now()) // the engine may add that it is idle
	if err := r.observeSnapshot(ctx, cluster, &seen); err != nil {
		return seen, err
	}
	if err := r.observeRestore(ctx, cluster, &seen); err != nil {
		return seen, err
	}
	if engine := r.Engines[seen.engine]; engine != nil {
		request := newRequest(cluster)
		request.Snapshot, request.Restore, request.Stop = seen.snapshot, seen.restore.request, seen.stop.wanted
		seen.outside, seen.err = engine.Observe(ctx, request)
		if seen.restore.request == nil && hasBegun(cluster, seen) {
			// It is no longer due by its age, but nothing may end it any more.
			seen.restore.request = &Restore{Token: requests.Token(&cluster.Spec.Restore.RequestedAt), Name: cluster.Spec.Restore.Snapshot}
		}
		if o := seen.outside.Operation; o != nil && !o.Delete && !request.Stop && !seen.outside.Idle && o.Restore != TokenOf(seen.restore.request) {
			o.Stale = true
		}
	} else {
		seen.err = fmt.Errorf("%w: this manager runs without the engine %s", ErrUnavailable, seen.engine)
	}
	seen.stop = decideStop(cluster, seen, r.Clock.Now())
	if err := r.observeChildren(ctx, cluster, &seen); err != nil {
		return seen, err
	}
	if err := r.observeUsers(ctx, cluster, &seen); err != nil {
		return seen, err
	}
	if err := r.observeScheduled(ctx, cluster, &seen); err != nil {
		return seen, err
	}
	r.observeProbe(cluster, &seen)
	return seen, nil
}

// observeChildren reads the Secret and the Kubeconfig. Secrets are not cached, so that credentials stay in the memory of the
// manager no longer than needed.
func (r *Reconciler) observeChildren(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: r.SecretNamespace, Name: secretName(cluster.Name)}
	switch err := r.Live.Get(ctx, key, &secret); {
	case err == nil:
		seen.secret = &secret
	case client.IgnoreNotFound(err) != nil:
		return kube.Named(err, "get", "Secret", key.Namespace, key.Name)
	}
	var kubeconfig v1alpha1.Kubeconfig
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: cluster.Name}, &kubeconfig); {
	case err == nil:
		seen.kubeconfig = &kubeconfig
	case client.IgnoreNotFound(err) != nil:
		return kube.Named(err, "get", "Kubeconfig", "", cluster.Name)
	}
	return nil
}

// observeProbe returns the last probe of the cluster. The cluster is probed while it has a kubeconfig, and is neither stopped nor
// being deleted.
func (r *Reconciler) observeProbe(cluster *v1alpha1.Cluster, seen *observation) {
	kubeconfig := probedWith(cluster, seen)
	if len(kubeconfig) == 0 || seen.stop.wanted || !cluster.DeletionTimestamp.IsZero() {
		r.Prober.Forget(cluster.UID)
		return
	}
	target := Target{Cluster: cluster.Name, UID: cluster.UID, Kubeconfig: kubeconfig}
	if api := find(seen.outside.Components, ComponentAPIServer); api != nil {
		target.Since = api.Since
	}
	seen.probe, seen.invalid = r.Prober.Probe(target)
}

// probedWith returns the kubeconfig of the probe. If the engine fails, for example because the data of the cluster is gone, it is the last one:
// only the API itself tells whether it still runs.
func probedWith(cluster *v1alpha1.Cluster, seen *observation) []byte {
	if len(seen.outside.Kubeconfig) > 0 || seen.err == nil || seen.secret == nil || !isControlled(seen.secret, cluster) {
		return seen.outside.Kubeconfig
	}
	return seen.secret.Data[v1alpha1.SecretKey]
}

// find returns the component with that name, or nil.
func find(components []Component, name string) *Component {
	for i := range components {
		if components[i].Name == name {
			return &components[i]
		}
	}
	return nil
}

// isControlled reports whether a child belongs to a Cluster. It compares the UID only: references of the original controller had
// no API group and were not controller references.
func isControlled(child metav1.Object, cluster *v1alpha1.Cluster) bool {
	return slices.ContainsFunc(child.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == cluster.UID })
}

// down returns the names of the components that do not run, and how the first of them exited.
func down(components []Component) (names, detail string) {
	var all []string
	for _, c := range components {
		if !c.Up {
			all = append(all, c.Name)
			detail = cmp.Or(detail, c.Detail)
		}
	}
	return strings.Join(all, ", "), detail
}
