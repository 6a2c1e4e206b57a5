// Package sampleresource keeps one Pod for each SampleResource.
package sampleresource

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics, flags and events.
const Name = "sampleresource"

var kind = samplev1.SchemeGroupVersion.WithKind("SampleResource")

// Reconciler reconciles the Pod of a SampleResource.
type Reconciler struct{ kube.Base }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options) error {
	if err := kube.AddIndexes(mgr.GetFieldIndexer(), Indexes...); err != nil {
		return err
	}
	r := &Reconciler{kube.BaseOf(mgr, kind, Name)}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&samplev1.SampleResource{}).
		Watches(&corev1.Pod{}, watchPods(mgr.GetClient()))
	return setup.Controller(mgr, Name, options, watches, r)
}

// +kubebuilder:rbac:groups=example.com,resources=sampleresources,verbs=get;list;watch
// +kubebuilder:rbac:groups=example.com,resources=sampleresources/status,verbs=update
// +kubebuilder:rbac:groups=example.com,resources=sampleresources/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile creates, changes, replaces or deletes the Pods of sample as its spec requires, and updates its status.
func (r *Reconciler) Reconcile(ctx context.Context, sample *samplev1.SampleResource) (reconcile.Result, error) {
	if !sample.DeletionTimestamp.IsZero() {
		// The garbage collector deletes the Pod. A replacement would interfere.
		return reconcile.Result{}, nil
	}
	seen, err := r.observe(ctx, sample)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide(sample, seen, r.Clock.Now())
	if plan.action == create && sample.Status.ObservedGeneration > 0 {
		// The Pod no longer exists. Its failure and the time of the next attempt may be in
		// a status that the cache does not have yet.
		if sample, err = r.current(ctx, sample); err != nil || sample == nil {
			return reconcile.Result{}, err
		}
		plan = decide(sample, seen, r.Clock.Now())
	}
	kube.LogAction(ctx, plan.action)
	actErr := r.act(ctx, sample, plan)
	status := summarize(sample, seen, plan, actErr)
	return r.finish(ctx, sample, status, plan, actErr)
}

// current reads the SampleResource from the API server. It returns nil if it was deleted or is being deleted.
func (r *Reconciler) current(ctx context.Context, cached *samplev1.SampleResource) (*samplev1.SampleResource, error) {
	sample := &samplev1.SampleResource{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), sample); err != nil {
		return nil, kube.Named(client.IgnoreNotFound(err), "get", "SampleResource", cached.Namespace, cached.Name)
	}
	if sample.UID != cached.UID || !sample.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return sample, nil
}

// observation is the observed state of the cluster.
type observation struct {
	// owned are the Pods that this SampleResource controls, oldest first. They are shared
	// with the cache and must not be modified.
	owned []corev1.Pod
	// free is the first unused Pod name.
	free string
	// other is a Pod with the name of the SampleResource that it does not control. Then
	// there is no free name.
	other *corev1.Pod
}

func (r *Reconciler) observe(ctx context.Context, sample *samplev1.SampleResource) (observation, error) {
	var seen observation
	var owned corev1.PodList
	err := r.Client.List(ctx, &owned, client.InNamespace(sample.Namespace),
		client.MatchingFields{podOwner: string(sample.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return seen, fmt.Errorf("list the Pods of SampleResource %s/%s: %w", sample.Namespace, sample.Name, err)
	}
	seen.owned = owned.Items
	for n := 0; ; n++ {
		key := client.ObjectKey{Namespace: sample.Namespace, Name: podName(sample, n)}
		if slices.ContainsFunc(seen.owned, func(pod corev1.Pod) bool { return pod.Name == key.Name }) {
			continue
		}
		var named corev1.Pod
		err := r.Client.Get(ctx, key, &named)
		switch {
		case apierrors.IsNotFound(err):
			seen.free = key.Name
		case err != nil:
			return seen, kube.Named(err, "get", "Pod", key.Namespace, key.Name)
		case metav1.IsControlledBy(&named, sample):
			// It was added to the cache between the two reads.
			seen.owned = append(seen.owned, named)
			continue
		case n > 0:
			// Users rely only on the first name.
			continue
		default:
			seen.other = &named
		}
		slices.SortFunc(seen.owned, byAge)
		return seen, nil
	}
}
