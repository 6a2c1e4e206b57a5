// Package cluster provisions, supervises and removes the cluster of each Cluster with the engine of its spec, and keeps its
// kubeconfig in a Secret and a Kubeconfig.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics, flags and events.
const Name = "cluster"

var kind = v1alpha1.SchemeGroupVersion.WithKind("Cluster")

// Options configure a Reconciler.
type Options struct {
	// Engines are the available engines.
	Engines map[v1alpha1.Engine]Engine
	// SecretNamespace is the namespace of the Secrets with the kubeconfigs.
	SecretNamespace string
	// Prober checks the health of the clusters, see NewProber.
	Prober Prober
}

// Reconciler reconciles the cluster of a Cluster.
type Reconciler struct {
	kube.Base
	Options
	metrics *measures
}

// NewReconciler returns a Reconciler. It reads Secrets from the API server, because they are not cached.
func NewReconciler(base kube.Base, o Options) *Reconciler {
	return &Reconciler{Base: base, Options: o, metrics: measured}
}

// Add adds the controller to a manager. The caller closes the options after the manager has stopped.
func Add(mgr ctrl.Manager, options controller.Options, o Options) error {
	o.Engines = traced(o.Engines)
	waker := newWaker()
	o.Prober.Notify(waker.wake)
	for _, engine := range o.Engines {
		engine.Notify(waker.wake)
	}
	secrets, err := newSecretCache(mgr, o.SecretNamespace)
	if err != nil {
		return err
	}
	r := NewReconciler(kube.BaseOf(mgr, kind, Name), o)
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.Cluster{}).
		Watches(&v1alpha1.Kubeconfig{}, watchChildren()).
		Watches(&v1alpha1.ClusterSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.clustersFrom)).
		WatchesRawSource(watchSecrets(secrets)).
		WatchesRawSource(waker.source())
	if err := setup.Controller(mgr, Name, options, watches, r); err != nil {
		return err
	}
	register(mgr.GetClient())
	if err := mgr.Add(setup.Every(sweepPeriod, r.Sweep)); err != nil {
		return fmt.Errorf("add the sweeper of controller %s: %w", Name, err)
	}
	return nil
}

// Close closes the prober and the engines, after the last reconcile.
func (o Options) Close() error {
	o.Prober.Close()
	var errs []error
	for _, engine := range o.Engines {
		errs = append(errs, engine.Close())
	}
	return errors.Join(errs...)
}

// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clusters,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clusters/status,verbs=update
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=kubeconfigs,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=clustersnapshots,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,verbs=get;list;watch;create;update;delete

// Reconcile observes a cluster, takes the next step towards the spec of its Cluster, and updates the status.
func (r *Reconciler) Reconcile(ctx context.Context, cluster *v1alpha1.Cluster) (reconcile.Result, error) {
	if done, err := r.prepare(ctx, cluster); done || err != nil {
		return kube.ResultForTransient(err)
	}
	seen, err := r.observe(ctx, cluster)
	if err != nil {
		return kube.ResultForTransient(err)
	}
	if errors.Is(seen.err, ErrStopping) {
		return reconcile.Result{}, nil
	}
	plan := decide(cluster, seen, r.Clock.Now())
	kube.LogAction(ctx, plan.action)
	actErr := r.act(ctx, cluster, seen, &plan)
	if errors.Is(actErr, ErrStopping) {
		return reconcile.Result{}, nil // the next manager starts the operation
	}
	status := summarize(cluster, seen, plan, actErr)
	return r.finish(ctx, cluster, seen, status, plan, actErr)
}

const (
	// longestBackoff is the maximum backoff after a failed operation.
	longestBackoff = 10 * time.Minute
	// recheck is the interval for errors that a user has to fix outside of the API.
	recheck = 15 * time.Second
)
