package snapshot

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// takeTimeout limits taking a snapshot. One of a database of the largest size takes minutes on a slow disk.
const takeTimeout = 10 * time.Minute

// act carries out the plan. It adds a snapshot that it takes to the observation.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.ClusterSnapshot, seen *observation, p plan) error {
	switch p.action {
	case claim:
		return kube.AddFinalizer(ctx, r.Client, s, v1alpha1.SnapshotFinalizer)
	case take:
		if err := r.checkLive(ctx, s); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, takeTimeout)
		defer cancel()
		began := r.Clock.Now()
		taken, err := r.store.TakeSnapshot(ctx, s.UID, Source{Name: seen.cluster.Name, UID: seen.cluster.UID, Spec: seen.cluster.Spec})
		if err != nil {
			return fmt.Errorf("take a snapshot of the Cluster %s: %w", s.Spec.ClusterName, err)
		}
		seen.taken = taken
		log.FromContext(ctx).Info("Took a snapshot", "Cluster", taken.Cluster, "revision", taken.Revision, "bytes", taken.Size, "took", r.Clock.Since(began).String())
	case remove:
		if err := r.store.RemoveSnapshot(s.UID); err != nil {
			return fmt.Errorf("remove the files of the snapshot: %w", err)
		}
		log.FromContext(ctx).Info("Deleted the snapshot")
		return kube.RemoveFinalizer(ctx, r.Client, s, v1alpha1.SnapshotFinalizer)
	}
	return nil
}

// checkLive compares the cached ClusterSnapshot with the API server before a snapshot is taken. The files of one that is deleted
// would be left over.
func (r *Reconciler) checkLive(ctx context.Context, s *v1alpha1.ClusterSnapshot) error {
	var now v1alpha1.ClusterSnapshot
	return kube.CheckLive(ctx, r.Live, kind.Kind, s, &now, func() bool { return !now.DeletionTimestamp.IsZero() || now.Status.TakenAt != nil })
}
