package cluster

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// newSchedule returns the schedule of a Cluster with spec.snapshots.
func newSchedule(cluster *v1alpha1.Cluster, stop stop) snapshots.Of {
	of := snapshots.Of{
		Object: cluster, Kind: "ClusterSnapshot", Spec: *cluster.Spec.Snapshots,
		Status: ptr.Deref(cluster.Status.Snapshots, commonv1.SnapshotScheduleStatus{}),
	}
	idle := func(message string) *metav1.Condition {
		return &metav1.Condition{Reason: v1alpha1.ReasonClusterNotRunning, Message: message}
	}
	switch {
	case stop.wanted:
		of.Idle = idle("No snapshots are made while " + stop.while)
	case cluster.Status.AppliedConfigHash == "":
		of.Idle = idle("No snapshots are made until the cluster is provisioned")
	}
	return of
}

// scheduled returns the ClusterSnapshots of the schedule of a Cluster.
func (r *Reconciler) scheduled(cluster *v1alpha1.Cluster) snapshots.Store[*v1alpha1.ClusterSnapshot] {
	return snapshots.Store[*v1alpha1.ClusterSnapshot]{
		Client: r.Client, Live: r.Live, Kind: "ClusterSnapshot", By: v1alpha1.LabelScheduledBy,
		Empty: func() *v1alpha1.ClusterSnapshot { return &v1alpha1.ClusterSnapshot{} },
		List: func(ctx context.Context, options ...client.ListOption) (all []*v1alpha1.ClusterSnapshot, err error) {
			var list v1alpha1.ClusterSnapshotList
			err = r.Client.List(ctx, &list, options...)
			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
			return all, err
		},
		View: func(s *v1alpha1.ClusterSnapshot) snapshots.Snapshot {
			return snapshots.Snapshot{Object: s, TakenAt: s.Status.TakenAt, Ready: meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)}
		},
		New:      func(at time.Time) *v1alpha1.ClusterSnapshot { return newScheduled(cluster, at) },
		Check:    func(ctx context.Context) error { return r.checkLive(ctx, cluster) },
		IsSource: r.isSource,
	}
}

// observeScheduled reads the ClusterSnapshots that spec.snapshots has made.
func (r *Reconciler) observeScheduled(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) (err error) {
	if cluster.Spec.Snapshots != nil && cluster.DeletionTimestamp.IsZero() {
		seen.scheduled, err = r.scheduled(cluster).Observe(ctx, newSchedule(cluster, seen.stop))
	}
	return err
}

// decideSchedule decides about the snapshots of spec.snapshots.
func decideSchedule(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	if cluster.Spec.Snapshots == nil {
		return
	}
	p.schedule = snapshots.Decide(newSchedule(cluster, seen.stop), seen.scheduled, p.at)
	if next := p.schedule.Again; !next.IsZero() {
		p.again = sooner(p.again, next.Sub(p.at))
	}
}

// newScheduled returns the ClusterSnapshot for a scheduled time. It has no owner reference, because it outlives the Cluster.
func newScheduled(cluster *v1alpha1.Cluster, at time.Time) *v1alpha1.ClusterSnapshot {
	labels := newLabels(cluster)
	labels[v1alpha1.LabelScheduledBy] = string(cluster.UID)
	return &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: snapshots.NameOf(cluster.Name, at), Labels: labels,
			Annotations: map[string]string{v1alpha1.AnnotationScheduledAt: at.UTC().Format(time.RFC3339)},
		},
		Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: cluster.Name},
	}
}

// actOnSchedule makes the snapshot that is due, and deletes those that are not kept.
func (r *Reconciler) actOnSchedule(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	if p.schedule == nil {
		return nil
	}
	return r.scheduled(cluster).Act(ctx, newSchedule(cluster, seen.stop), p.schedule)
}

// isSource reports whether a Cluster is being made of a ClusterSnapshot or restored from it.
func (r *Reconciler) isSource(ctx context.Context, snapshot client.Object) (bool, error) {
	var clusters v1alpha1.ClusterList
	if err := r.Client.List(ctx, &clusters); err != nil {
		return false, kube.Named(err, "list", "Clusters", "", "")
	}
	return slices.ContainsFunc(clusters.Items, func(c v1alpha1.Cluster) bool { return needsSnapshot(&c, snapshot.GetName()) }), nil
}

// summarizeSchedule sets or removes what the status has about spec.snapshots.
func summarizeSchedule(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error, status *v1alpha1.ClusterStatus) {
	status.Snapshots = nil
	if cluster.Spec.Snapshots == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionSnapshotsUpToDate)
		return
	}
	progress := snapshots.Summarize(newSchedule(cluster, seen.stop), p.schedule, actErr, p.at, &status.Conditions)
	if progress != (commonv1.SnapshotScheduleStatus{}) {
		status.Snapshots = &progress
	}
}
