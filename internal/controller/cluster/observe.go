package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// observation is what there is of a cluster, in the API and outside.
type observation struct {
	// engine is the one that the Cluster asks for; what it sees, and why it cannot see.
	engine  v1alpha1.Engine
	outside Observation
	err     error
	// probe is how the API of the cluster answered last; nil if it was not asked.
	probe *Probe
	// invalid says why the kubeconfig of the engine cannot be used.
	invalid error
	// secret and kubeconfig are the objects of the names that ours have; nil if there are none.
	secret     *corev1.Secret
	kubeconfig *v1alpha1.Kubeconfig
	// namespace is where the Secret is.
	namespace string
}

// engineOf returns the engine that a Cluster asks for.
func engineOf(spec v1alpha1.ClusterSpec) v1alpha1.Engine {
	switch {
	case spec.Engine != "":
		return spec.Engine
	case spec.ConfigPath != "":
		return v1alpha1.EngineRKE
	default:
		return v1alpha1.EngineLocal
	}
}

// newRequest returns what the engine is told about a Cluster.
func newRequest(cluster *v1alpha1.Cluster) Request {
	request := Request{
		Name: cluster.Name, UID: cluster.UID, Spec: *cluster.Spec.DeepCopy(),
		Rotation: cluster.Annotations[v1alpha1.AnnotationRotateCredentials],
		Deleting: !cluster.DeletionTimestamp.IsZero(),
		Applied:  cluster.Status.AppliedConfigHash, AppliedConfig: cluster.Status.AppliedConfig,
	}
	if request.Applied == "" && request.AppliedConfig != "" {
		request.Applied = "unknown" // stored by the original controller, which had no hash
	}
	request.Spec.Engine = engineOf(cluster.Spec)
	return request
}

func (r *Reconciler) observe(ctx context.Context, cluster *v1alpha1.Cluster) (observation, error) {
	seen := observation{engine: engineOf(cluster.Spec), namespace: r.SecretNamespace}
	if engine := r.Engines[seen.engine]; engine != nil {
		seen.outside, seen.err = engine.Observe(ctx, newRequest(cluster))
	} else {
		seen.err = fmt.Errorf("%w: this manager runs without the engine %s", ErrUnavailable, seen.engine)
	}
	if err := r.observeChildren(ctx, cluster, &seen); err != nil {
		return seen, err
	}
	r.observeProbe(cluster, &seen)
	return seen, nil
}

// observeChildren reads the Secret and the Kubeconfig. The Secret is read from the API server: no cache has it, so that
// credentials are in the memory of the manager no longer than needed.
func (r *Reconciler) observeChildren(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: r.SecretNamespace, Name: secretName(cluster.Name)}
	switch err := r.live.Get(ctx, key, &secret); {
	case err == nil:
		seen.secret = &secret
	case client.IgnoreNotFound(err) != nil:
		return kube.Named(err, "get", "Secret", key.Namespace, key.Name)
	}
	var kubeconfig v1alpha1.Kubeconfig
	switch err := r.client.Get(ctx, client.ObjectKey{Name: cluster.Name}, &kubeconfig); {
	case err == nil:
		seen.kubeconfig = &kubeconfig
	case client.IgnoreNotFound(err) != nil:
		return kube.Named(err, "get", "Kubeconfig", "", cluster.Name)
	}
	return nil
}

// observeProbe has the cluster probed as long as there is a kubeconfig and nobody removes the cluster, and takes the
// last answer.
func (r *Reconciler) observeProbe(cluster *v1alpha1.Cluster, seen *observation) {
	if len(seen.outside.Kubeconfig) == 0 || !cluster.DeletionTimestamp.IsZero() {
		r.Prober.Forget(cluster.UID)
		return
	}
	target := Target{Cluster: cluster.Name, UID: cluster.UID, Kubeconfig: seen.outside.Kubeconfig}
	if api := find(seen.outside.Components, ComponentAPIServer); api != nil {
		target.Since = api.Since
	}
	seen.probe, seen.invalid = r.Prober.Probe(target)
}

// find returns the component of that name, or nil.
func find(components []Component, name string) *Component {
	for i := range components {
		if components[i].Name == name {
			return &components[i]
		}
	}
	return nil
}

// isOurs tells whether a child belongs to a Cluster. References of the original controller had no group and were no
// controller references: only the UID counts.
func isOurs(child metav1.Object, cluster *v1alpha1.Cluster) bool {
	for _, ref := range child.GetOwnerReferences() {
		if ref.UID == cluster.UID {
			return true
		}
	}
	return false
}

// down returns the names of the components that do not run, and how the first of them ended.
func down(components []Component) (names, detail string) {
	var all []string
	for _, c := range components {
		if !c.Up {
			all = append(all, c.Name)
			if detail == "" {
				detail = c.Detail
			}
		}
	}
	return strings.Join(all, ", "), detail
}
