package cluster

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// prepare moves what the original controller stored to its present place, and makes sure of the finalizer before
// anything is done outside of the API. If it wrote, the reconcile is done: the event of that leads to the next.
func (r *Reconciler) prepare(ctx context.Context, cluster *v1alpha1.Cluster) (done bool, err error) {
	changed := cluster.DeepCopy()
	migrated := migrate(changed)
	if changed.DeletionTimestamp.IsZero() && !changed.Spec.Paused {
		controllerutil.AddFinalizer(changed, v1alpha1.Finalizer)
	}
	if !migrated && slices.Equal(cluster.Finalizers, changed.Finalizers) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, changed, patch, client.FieldOwner(kube.FieldManager)); err != nil {
		return true, kube.Named(client.IgnoreNotFound(err), "prepare", kind.Kind, "", cluster.Name)
	}
	if migrated {
		log.FromContext(ctx).Info("Migrated what the original controller stored", "Cluster", cluster.Name)
		r.events.Normal(cluster, v1alpha1.ReasonMigrated, "Migrate",
			"Moved what the original controller stored to its present place: spec.configPath, the finalizer")
	}
	return true, nil
}

// migrate moves what the original controller stored, and tells whether there was anything.
func migrate(cluster *v1alpha1.Cluster) bool {
	migrated := false
	if legacy := cluster.Spec.LegacyConfigPath; legacy != "" {
		if cluster.Spec.ConfigPath == "" {
			cluster.Spec.ConfigPath = legacy
		}
		cluster.Spec.LegacyConfigPath = ""
		migrated = true
	}
	// The API takes no new finalizer for what is being deleted: there the old one stands for ours.
	if i := slices.Index(cluster.Finalizers, v1alpha1.LegacyFinalizer); i >= 0 && cluster.DeletionTimestamp.IsZero() {
		cluster.Finalizers = slices.Delete(cluster.Finalizers, i, i+1)
		controllerutil.AddFinalizer(cluster, v1alpha1.Finalizer)
		migrated = true
	}
	return migrated
}
