// Package foo keeps one Deployment for each Foo.
package foo

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics, flags and events.
const Name = "foo"

var kind = v1alpha1.SchemeGroupVersion.WithKind("Foo")

// Reconciler reconciles the Deployment of a Foo.
type Reconciler struct{ kube.Base }

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options) error {
	if err := kube.AddIndexes(mgr.GetFieldIndexer(), Indexes...); err != nil {
		return err
	}
	r := &Reconciler{kube.BaseOf(mgr, kind, Name)}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.Foo{}).
		Watches(&appsv1.Deployment{}, watchDeployments(mgr.GetClient()))
	return setup.Controller(mgr, Name, options, watches, r)
}

// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos,verbs=get;list;watch
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos/status,verbs=update
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile creates, repairs, replaces or deletes the Deployments of foo as its spec requires, and updates its status.
func (r *Reconciler) Reconcile(ctx context.Context, foo *v1alpha1.Foo) (reconcile.Result, error) {
	if !foo.DeletionTimestamp.IsZero() {
		// The garbage collector deletes the Deployment. A write would interfere.
		return reconcile.Result{}, nil
	}
	seen, err := r.observe(ctx, foo)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide(foo, seen, r.Clock.Now())
	kube.LogAction(ctx, plan.action)
	actErr := r.act(ctx, foo, plan)
	status := summarize(foo, seen, plan, actErr)
	return r.finish(ctx, foo, status, plan, actErr)
}

// observation is the observed state of the cluster.
type observation struct {
	// owned are the Deployments that this Foo controls. They are shared with the cache
	// and must not be modified.
	owned []appsv1.Deployment
	// other is a Deployment with the name of spec.deploymentName that this Foo does not control.
	other *appsv1.Deployment
	// podProblem is why a Pod of the Deployment does not become ready; empty if that is not known.
	podProblem string
}

func (r *Reconciler) observe(ctx context.Context, foo *v1alpha1.Foo) (observation, error) {
	var seen observation
	var owned appsv1.DeploymentList
	err := r.Client.List(ctx, &owned, client.InNamespace(foo.Namespace),
		client.MatchingFields{deploymentOwner: string(foo.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return seen, fmt.Errorf("list the Deployments of Foo %s/%s: %w", foo.Namespace, foo.Name, err)
	}
	seen.owned = owned.Items
	if current := seen.find(foo.Spec.DeploymentName); current != nil {
		if due, _ := podCheck(foo, current, r.Clock.Now()); due {
			seen.podProblem, err = r.observePods(ctx, foo)
		}
		return seen, err
	}
	var named appsv1.Deployment
	key := client.ObjectKey{Namespace: foo.Namespace, Name: foo.Spec.DeploymentName}
	if err := r.Client.Get(ctx, key, &named); err != nil {
		return seen, kube.Named(client.IgnoreNotFound(err), "get", "Deployment", key.Namespace, key.Name)
	}
	if metav1.IsControlledBy(&named, foo) {
		// It was added to the cache between the two reads.
		seen.owned = append(seen.owned, named)
		return seen, nil
	}
	seen.other = &named
	return seen, nil
}

// maxPods is how many Pods of a Deployment are read: one with a problem says what is wrong with all.
const maxPods = 20

// observePods returns why a Pod of foo does not become ready. The status of the Deployment only has that after its progress deadline.
func (r *Reconciler) observePods(ctx context.Context, foo *v1alpha1.Foo) (problem string, err error) {
	var pods corev1.PodList
	// From the API server: a cache would keep all Pods of the cluster for this.
	if err := r.Live.List(ctx, &pods, client.InNamespace(foo.Namespace), client.MatchingLabels(newSelector(foo)), client.Limit(maxPods)); err != nil {
		return "", fmt.Errorf("list the Pods of Foo %s/%s: %w", foo.Namespace, foo.Name, err)
	}
	for i := range pods.Items {
		if problem := kube.PodProblem(&pods.Items[i]); problem != "" && pods.Items[i].DeletionTimestamp.IsZero() {
			return problem, nil
		}
	}
	return "", nil
}

// find returns the owned Deployment with that name, or nil.
func (o observation) find(name string) *appsv1.Deployment {
	for i := range o.owned {
		if o.owned[i].Name == name {
			return &o.owned[i]
		}
	}
	return nil
}
