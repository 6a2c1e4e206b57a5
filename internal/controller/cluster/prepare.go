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

// prepare migrates fields of the original controller, and adds the finalizer before any action outside of the API. If it has
// changed the Cluster, this reconcile ends: the event of the change triggers the next one.
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
	if err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(kube.FieldManager)); err != nil {
		return true, kube.Named(client.IgnoreNotFound(err), "prepare", kind.Kind, "", cluster.Name)
	}
	if migrated {
		log.FromContext(ctx).Info("Migrated fields of the original controller", "Cluster", cluster.Name)
		r.Events.Normal(cluster, v1alpha1.ReasonMigrated, "Migrate",
			"Moved spec.configPath and the finalizer of the original controller to their current names")
	}
	return true, nil
}

// migrate migrates the fields of the original controller, and reports whether there were any.
func migrate(cluster *v1alpha1.Cluster) bool {
	migrated := false
	if legacy := cluster.Spec.LegacyConfigPath; legacy != "" {
		if cluster.Spec.ConfigPath == "" {
			cluster.Spec.ConfigPath = legacy
		}
		cluster.Spec.LegacyConfigPath = ""
		migrated = true
	}
	// The API rejects new finalizers on an object that is being deleted. There the old finalizer is used.
	if i := slices.Index(cluster.Finalizers, v1alpha1.LegacyFinalizer); i >= 0 && cluster.DeletionTimestamp.IsZero() {
		cluster.Finalizers = slices.Delete(cluster.Finalizers, i, i+1)
		controllerutil.AddFinalizer(cluster, v1alpha1.Finalizer)
		migrated = true
	}
	return migrated
}
