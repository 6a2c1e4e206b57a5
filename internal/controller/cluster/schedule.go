package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/kube"
)

// maxClockSkew is how far decidedUntil may be in the future. If it is later, the clock was wrong, and the schedule begins anew.
const maxClockSkew = time.Minute

// observeScheduled reads the ClusterSnapshots that spec.snapshots has made.
func (r *Reconciler) observeScheduled(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	if cluster.Spec.Snapshots == nil || !cluster.DeletionTimestamp.IsZero() {
		return nil
	}
	var list v1alpha1.ClusterSnapshotList
	if err := r.client.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelScheduledBy: string(cluster.UID)}); err != nil {
		return kube.Named(err, "list", "ClusterSnapshots", "", "")
	}
	seen.scheduled = list.Items
	last := ptr.Deref(cluster.Status.Snapshots, v1alpha1.SnapshotScheduleStatus{}).LastSnapshot
	isLast := func(s v1alpha1.ClusterSnapshot) bool { return s.Name == last }
	if last == "" || slices.ContainsFunc(seen.scheduled, isLast) {
		return nil
	}
	var snapshot v1alpha1.ClusterSnapshot // the cache may be behind
	switch err := r.live.Get(ctx, client.ObjectKey{Name: last}, &snapshot); {
	case err == nil && snapshot.Labels[v1alpha1.LabelScheduledBy] == string(cluster.UID):
		seen.scheduled = append(seen.scheduled, snapshot)
	case client.IgnoreNotFound(err) != nil:
		return kube.Named(err, "get", "ClusterSnapshot", "", last)
	}
	return nil
}

// schedulePlan is the plan for spec.snapshots.
type schedulePlan struct {
	// status is the progress after the plan was executed.
	status v1alpha1.SnapshotScheduleStatus
	// create is the scheduled time of the snapshot to make; zero for none.
	create time.Time
	// prune are snapshots that are not kept.
	prune []v1alpha1.ClusterSnapshot
	// condition is the condition if the plan is executed without an error.
	condition metav1.Condition
	// made is true after the snapshot that is due was made. act sets it, also if none is due.
	made bool
}

// decideSchedule decides about the snapshots of spec.snapshots.
func decideSchedule(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	const name = v1alpha1.ConditionSnapshotsUpToDate
	spec := cluster.Spec.Snapshots
	if spec == nil {
		return
	}
	s := &schedulePlan{}
	if cluster.Status.Snapshots != nil {
		s.status = *cluster.Status.Snapshots.DeepCopy()
	}
	p.schedule = s
	s.prune = selectSurplus(seen.scheduled, int(ptr.Deref(spec.Keep, v1alpha1.DefaultSnapshotsKept)))
	s.condition = scheduleCondition(cluster, seen.scheduled)
	times, invalid := newSchedule(cluster)
	switch {
	case invalid != nil:
		s.condition = condition(name, metav1.ConditionFalse, v1alpha1.ReasonInvalidSchedule, "%s: %s", invalid.Field, invalid.Detail)
		s.status.NextScheduleTime = nil
		return
	case spec.Suspend:
		s.condition = condition(name, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "No snapshots are made: spec.snapshots.suspend is true")
		s.status.Schedule, s.status.DecidedUntil, s.status.NextScheduleTime = "", nil, nil
		return
	}
	until := s.begin(cluster, p.at)
	if due, ok := times.Prev(p.at.Add(time.Nanosecond)); ok && due.After(until) {
		until = due
		s.make(cluster, seen.scheduled, due.UTC())
	}
	s.status.DecidedUntil, s.status.NextScheduleTime = &metav1.Time{Time: until.UTC()}, nil
	if next, ok := times.Next(p.at); ok {
		s.status.NextScheduleTime = &metav1.Time{Time: next.UTC()}
		p.again = sooner(p.again, next.Sub(p.at))
	}
}

// make plans the snapshot for a scheduled time. An earlier manager may have made it, without writing that down. The time is left out
// if the condition says that there is a reason.
func (s *schedulePlan) make(cluster *v1alpha1.Cluster, scheduled []v1alpha1.ClusterSnapshot, due time.Time) {
	snapshot := scheduledName(cluster.Name, due)
	exists := slices.ContainsFunc(scheduled, func(s v1alpha1.ClusterSnapshot) bool { return s.Name == snapshot })
	if !exists && s.condition.Status != metav1.ConditionTrue {
		return
	}
	s.status.LastScheduleTime, s.status.LastSnapshot = &metav1.Time{Time: due}, snapshot
	if !exists {
		s.create = due
		s.condition = condition(s.condition.Type, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "The ClusterSnapshot %s is not taken yet", snapshot)
	}
}

// begin returns the time after which scheduled times count. Times before the schedule was set or changed do not count.
func (s *schedulePlan) begin(cluster *v1alpha1.Cluster, now time.Time) time.Time {
	spec := cluster.Spec.Snapshots
	key := spec.Schedule + " " + cmp.Or(spec.TimeZone, "UTC")
	until := s.status.DecidedUntil
	if s.status.Schedule == key && until != nil && !until.After(now.Add(maxClockSkew)) {
		return until.Time
	}
	isNew := s.status.Schedule == "" && cluster.Generation <= 1
	s.status.Schedule = key
	if isNew {
		return cluster.CreationTimestamp.Time
	}
	return now.Truncate(time.Second)
}

// scheduleCondition returns the condition about the snapshots that exist. A snapshot is made only if it is True.
func scheduleCondition(cluster *v1alpha1.Cluster, scheduled []v1alpha1.ClusterSnapshot) metav1.Condition {
	const name = v1alpha1.ConditionSnapshotsUpToDate
	var newest *v1alpha1.ClusterSnapshot
	for i := range scheduled {
		s := &scheduled[i]
		if s.Status.TakenAt == nil && s.DeletionTimestamp.IsZero() {
			message := "it waits for its controller"
			if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
				message = ready.Message
			}
			return condition(name, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "The ClusterSnapshot %s is not taken yet: %s", s.Name, message)
		}
		if newest == nil || s.Name > newest.Name {
			newest = s
		}
	}
	switch {
	case !isRunning(cluster):
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonClusterNotRunning, "No snapshots are made while spec.running is false")
	case cluster.Status.AppliedConfigHash == "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonClusterNotRunning, "No snapshots are made until the cluster is provisioned")
	case newest == nil:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonNotDue, "No snapshot was due yet")
	}
	return condition(name, metav1.ConditionTrue, v1alpha1.ReasonSnapshotTaken, "The last ClusterSnapshot, %s, is taken", newest.Name)
}

// selectSurplus returns the snapshots to delete: all older than the newest keep that are ready.
func selectSurplus(scheduled []v1alpha1.ClusterSnapshot, keep int) []v1alpha1.ClusterSnapshot {
	taken := slices.DeleteFunc(slices.Clone(scheduled), func(s v1alpha1.ClusterSnapshot) bool { return s.Status.TakenAt == nil })
	slices.SortFunc(taken, func(a, b v1alpha1.ClusterSnapshot) int {
		return cmp.Or(b.Status.TakenAt.Compare(a.Status.TakenAt.Time), strings.Compare(b.Name, a.Name))
	})
	for i := range taken {
		if keep == 0 {
			return slices.DeleteFunc(taken[i:], func(s v1alpha1.ClusterSnapshot) bool { return !s.DeletionTimestamp.IsZero() })
		}
		if meta.IsStatusConditionTrue(taken[i].Status.Conditions, v1alpha1.ConditionReady) {
			keep-- // others have lost their files
		}
	}
	return nil
}

// scheduledName returns the name of the ClusterSnapshot for a scheduled time. A time has one name, so that it has one snapshot.
func scheduledName(cluster string, at time.Time) string {
	suffix := "-scheduled-" + at.UTC().Format("20060102-150405")
	return kube.Shorten(cluster, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// newScheduled returns that ClusterSnapshot. It has no owner reference, because it outlives the Cluster.
func newScheduled(cluster *v1alpha1.Cluster, at time.Time) *v1alpha1.ClusterSnapshot {
	labels := newLabels(cluster)
	labels[v1alpha1.LabelScheduledBy] = string(cluster.UID)
	return &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: scheduledName(cluster.Name, at), Labels: labels,
			Annotations: map[string]string{v1alpha1.AnnotationScheduledAt: at.UTC().Format(time.RFC3339)},
		},
		Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: cluster.Name},
	}
}

// newSchedule returns the scheduled times of a Cluster with spec.snapshots.
func newSchedule(cluster *v1alpha1.Cluster) (*cron.Plan, *field.Error) {
	spec, path := cluster.Spec.Snapshots, field.NewPath("spec", "snapshots")
	location, err := cron.LoadLocation(spec.TimeZone)
	if err != nil {
		return nil, field.Invalid(path.Child("timeZone"), spec.TimeZone, err.Error())
	}
	schedule, err := cron.Parse(spec.Schedule, cluster.Name)
	if err != nil {
		return nil, field.Invalid(path.Child("schedule"), spec.Schedule, cron.Detail(err, spec.Schedule))
	}
	times, err := cron.New(cron.Options{Schedules: []*cron.Schedule{schedule}, Location: location, Anchor: cluster.CreationTimestamp.Time})
	if err != nil {
		return nil, field.Invalid(path.Child("schedule"), spec.Schedule, err.Error())
	}
	return times, nil
}

// scheduleError is an error of a write of a ClusterSnapshot.
type scheduleError struct{ error }

func (e *scheduleError) Unwrap() error { return e.error }

// actOnSchedule makes the snapshot that is due, and deletes those that are not kept.
func (r *Reconciler) actOnSchedule(ctx context.Context, cluster *v1alpha1.Cluster, p *plan) error {
	if p.schedule == nil {
		return nil
	}
	if at := p.schedule.create; !at.IsZero() {
		if err := r.createScheduled(ctx, cluster, at); err != nil {
			return &scheduleError{err}
		}
	}
	p.schedule.made = true
	for i := range p.schedule.prune {
		s := &p.schedule.prune[i]
		if needed, err := r.isSource(ctx, s.Name); err != nil || needed {
			return err // it is deleted after the next one is taken
		}
		if err := kube.Delete(ctx, r.client, s); err != nil {
			return kube.Named(err, "delete", "ClusterSnapshot", "", s.Name)
		}
		log.FromContext(ctx).Info("Deleted a scheduled snapshot that is not kept", "ClusterSnapshot", s.Name)
	}
	return nil
}

// createScheduled makes the ClusterSnapshot for a scheduled time, unless an earlier attempt or manager did.
func (r *Reconciler) createScheduled(ctx context.Context, cluster *v1alpha1.Cluster, at time.Time) error {
	if err := r.checkLive(ctx, cluster); err != nil {
		return err
	}
	s := newScheduled(cluster, at)
	err := r.client.Create(ctx, s, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		var found v1alpha1.ClusterSnapshot
		if err = r.live.Get(ctx, client.ObjectKeyFromObject(s), &found); err == nil && found.Labels[v1alpha1.LabelScheduledBy] != string(cluster.UID) {
			err = kube.ErrNotOwned
		}
	} else if err == nil {
		log.FromContext(ctx).Info("Made a scheduled snapshot", "ClusterSnapshot", s.Name)
	}
	return kube.Named(err, "create", "ClusterSnapshot", "", s.Name)
}

// isSource reports whether a Cluster is being made of a ClusterSnapshot or restored from it.
func (r *Reconciler) isSource(ctx context.Context, snapshot string) (bool, error) {
	var clusters v1alpha1.ClusterList
	if err := r.client.List(ctx, &clusters); err != nil {
		return false, kube.Named(err, "list", "Clusters", "", "")
	}
	return slices.ContainsFunc(clusters.Items, func(c v1alpha1.Cluster) bool { return needsSnapshot(&c, snapshot) }), nil
}

// summarizeSchedule sets or removes what the status has about spec.snapshots.
func summarizeSchedule(cluster *v1alpha1.Cluster, p plan, actErr error, status *v1alpha1.ClusterStatus) {
	const name = v1alpha1.ConditionSnapshotsUpToDate
	if cluster.Spec.Snapshots == nil {
		status.Snapshots = nil
		meta.RemoveStatusCondition(&status.Conditions, name)
		return
	}
	is := condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The schedule was not looked at yet")
	if before := meta.FindStatusCondition(status.Conditions, name); before != nil {
		is = *before // nothing is done while the Cluster is paused or deleted
	}
	var failed *scheduleError
	switch isFailed := errors.As(actErr, &failed); {
	case p.schedule != nil && p.schedule.made:
		is, status.Snapshots = p.schedule.condition, p.schedule.status.DeepCopy()
	case isFailed && errors.Is(failed, kube.ErrNotOwned):
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists,
			"There is a ClusterSnapshot %s that the schedule has not made: delete it, or wait for the next time", p.schedule.status.LastSnapshot)
	case isFailed && !kube.IsStale(failed):
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "%v. Keelson retries", failed.error)
	}
	is.ObservedGeneration, is.LastTransitionTime = cluster.Generation, metav1.NewTime(p.at)
	meta.SetStatusCondition(&status.Conditions, is)
}
