package cluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// observeSnapshot reads the ClusterSnapshot of spec.from of a Cluster that is not provisioned yet.
func (r *Reconciler) observeSnapshot(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	if cluster.Spec.From == nil || cluster.Status.AppliedConfigHash != "" || !cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	snapshot, err := r.readySnapshot(ctx, cluster.Spec.From.Snapshot)
	if errors.Is(err, ErrSnapshot) {
		seen.snapshot.Err = err
		return nil
	}
	if err == nil {
		seen.snapshot.UID = snapshot.UID
	}
	return err
}

// readySnapshot returns a ClusterSnapshot. It returns an ErrSnapshot if there is none, or if it is not ready.
func (r *Reconciler) readySnapshot(ctx context.Context, name string) (*v1alpha1.ClusterSnapshot, error) {
	var snapshot v1alpha1.ClusterSnapshot
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &snapshot)
	if client.IgnoreNotFound(err) != nil {
		return nil, kube.Named(err, "get", "ClusterSnapshot", "", name)
	}
	ready := meta.FindStatusCondition(snapshot.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: there is no ClusterSnapshot %s: create it, or choose another one", ErrSnapshot, name)
	case ready == nil:
		return nil, fmt.Errorf("%w: the ClusterSnapshot %s is not taken yet", ErrSnapshot, name)
	case ready.Status != metav1.ConditionTrue:
		return nil, fmt.Errorf("%w: the ClusterSnapshot %s is not ready: %s", ErrSnapshot, name, ready.Message)
	}
	return &snapshot, nil
}

// needsSnapshot reports whether a Cluster is made of a ClusterSnapshot and not provisioned yet, or is to be restored from it.
func needsSnapshot(cluster *v1alpha1.Cluster, snapshot string) bool {
	from := cluster.Spec.From
	if asksForRestore(cluster) && cluster.Spec.Restore.Snapshot == snapshot {
		return true
	}
	return from != nil && from.Snapshot == snapshot && cluster.Status.AppliedConfigHash == ""
}

// clustersFrom returns the Clusters that are made of a ClusterSnapshot or wait for it, and the Cluster whose schedule made it.
func (r *Reconciler) clustersFrom(ctx context.Context, snapshot client.Object) []reconcile.Request {
	var clusters v1alpha1.ClusterList
	if err := r.Client.List(ctx, &clusters); err != nil {
		return nil // they look again after a pause
	}
	var requests []reconcile.Request
	for i := range clusters.Items {
		c := &clusters.Items[i]
		if needsSnapshot(c, snapshot.GetName()) || asksForRestore(c) || snapshot.GetLabels()[v1alpha1.LabelScheduledBy] == string(c.UID) {
			requests = append(requests, request(c.Name))
		}
	}
	return requests
}
