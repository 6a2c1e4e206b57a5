package cluster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// snapshots returns the ClusterSnapshots of the Cluster, by name.
func (w *world) snapshots() []v1alpha1.ClusterSnapshot {
	w.Helper()
	var list, own v1alpha1.ClusterSnapshotList
	w.do(w.client.List(w.Context(), &list))
	for _, s := range list.Items {
		if s.Spec.ClusterName == w.name {
			own.Items = append(own.Items, s)
		}
	}
	return own.Items
}

// takeSnapshots does what the controller of ClusterSnapshots does.
func (w *world) takeSnapshots() {
	w.Helper()
	for _, s := range w.snapshots() {
		if s.Status.TakenAt == nil {
			w.setTaken(&s, metav1.ConditionTrue, v1alpha1.ReasonSnapshotTaken, "taken")
		}
	}
}

// setTaken sets the condition Ready of a ClusterSnapshot, and the time if it is True.
func (w *world) setTaken(s *v1alpha1.ClusterSnapshot, status metav1.ConditionStatus, reason, message string) {
	w.Helper()
	if status == metav1.ConditionTrue {
		s.Status.TakenAt = &metav1.Time{Time: w.clock.Now()}
	}
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message})
	w.do(w.client.Status().Update(w.Context(), s))
}

// expectSnapshots compares the names of the ClusterSnapshots without the name of the Cluster.
func (w *world) expectSnapshots(want ...string) {
	w.Helper()
	var got []string
	for _, s := range w.snapshots() {
		got = append(got, strings.TrimPrefix(s.Name, w.name+"-"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("ClusterSnapshots (-want +got):\n%s", diff)
	}
}

// expectSchedule compares the reason of the condition about the schedule.
func (w *world) expectSchedule(reason string) metav1.Condition {
	w.Helper()
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonNotDue || reason == v1alpha1.ReasonSnapshotTaken {
		status = metav1.ConditionTrue
	}
	return w.expect(v1alpha1.ConditionSnapshotsUpToDate, status, reason)
}

// monday is a time in the future, so that objects are not created after it: 1 January 2035, 12:00 in UTC.
var monday = time.Date(2035, time.January, 1, 12, 0, 0, 0, time.UTC)

// at sets the clock to a time of the day after monday, and reconciles.
func (w *world) at(days int, clock string) {
	w.Helper()
	hour, err := time.Parse("15:04:05", clock)
	w.do(err)
	midnight := monday.Truncate(24*time.Hour).AddDate(0, 0, days)
	w.clock.SetTime(midnight.Add(time.Duration(hour.Hour()*3600+hour.Minute()*60+hour.Second()) * time.Second))
	w.reconcile()
	w.reconcile()
}

func scheduled(c *v1alpha1.Cluster) {
	c.Spec.Snapshots = &commonv1.SnapshotSchedule{Schedule: "0 3 * * *", Keep: ptr.To[int32](2)}
}

func TestSnapshotsOnASchedule(t *testing.T) {
	w := newWorld(t)
	w.clock.SetTime(monday)
	w.made()
	w.change(scheduled)
	w.do(w.client.Create(t.Context(), &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: w.name + "-mine"}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: w.name},
	}))
	w.settle()
	w.expectSchedule(v1alpha1.ReasonNotDue)
	if next := w.get().Status.Snapshots.NextScheduleTime; !next.Equal(&metav1.Time{Time: monday.Add(15 * time.Hour)}) {
		t.Errorf("the next time is %v", next)
	}
	w.expectSnapshots("mine")
	w.at(1, "02:59:59")
	w.expectSnapshots("mine")
	w.at(1, "03:00:00")
	w.expectSnapshots("mine", "scheduled-20350102-030000")
	w.expectSchedule(v1alpha1.ReasonSnapshotPending)
	s := w.snapshots()[1]
	if s.Annotations[v1alpha1.AnnotationScheduledAt] != "2035-01-02T03:00:00Z" || s.Labels[v1alpha1.LabelClusterName] != w.name || len(s.OwnerReferences) > 0 {
		t.Errorf("the snapshot is %+v", s.ObjectMeta)
	}
	w.setTaken(&s, metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed, "no space left")
	w.at(2, "03:00:00") // the one before is not taken
	w.expectSnapshots("mine", "scheduled-20350102-030000")
	if c := w.expectSchedule(v1alpha1.ReasonSnapshotPending); !strings.Contains(c.Message, "no space left") {
		t.Errorf("the message is %q", c.Message)
	}
	w.takeSnapshots()
	w.at(2, "03:10:00")
	w.expectSchedule(v1alpha1.ReasonSnapshotTaken)
	w.expectSnapshots("mine", "scheduled-20350102-030000")
	statuscheck.Verify(t, w.get())

	w.restart() // no manager for three days: the last time counts
	w.at(5, "11:00:00")
	w.expectSnapshots("mine", "scheduled-20350102-030000", "scheduled-20350106-030000")
	w.takeSnapshots()
	w.at(6, "03:00:01") // nothing is deleted before the third is taken
	w.expectSnapshots("mine", "scheduled-20350102-030000", "scheduled-20350106-030000", "scheduled-20350107-030000")
	w.takeSnapshots()
	w.at(6, "03:00:02")
	w.expectSnapshots("mine", "scheduled-20350106-030000", "scheduled-20350107-030000")

	w.run(false)
	w.at(7, "03:00:00")
	w.expectSchedule(v1alpha1.ReasonClusterNotRunning)
	w.run(true)
	w.at(7, "04:00:00") // it is not made up for
	w.expectSchedule(v1alpha1.ReasonSnapshotTaken)
	w.expectSnapshots("mine", "scheduled-20350106-030000", "scheduled-20350107-030000")

	w.change(func(c *v1alpha1.Cluster) { c.Spec.Snapshots.Suspend = true })
	w.at(8, "03:00:00")
	w.expectSchedule(v1alpha1.ReasonSuspended)
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Snapshots.Suspend = false })
	w.at(8, "04:00:00")
	w.change(func(c *v1alpha1.Cluster) {
		c.Spec.Snapshots.Schedule, c.Spec.Snapshots.TimeZone = "30 4 * * *", "Europe/Berlin"
	})
	w.at(8, "05:00:00") // 04:30 in Berlin is over
	w.expectSnapshots("mine", "scheduled-20350106-030000", "scheduled-20350107-030000")
	w.at(9, "03:30:00")
	w.expectSnapshots("mine", "scheduled-20350106-030000", "scheduled-20350107-030000", "scheduled-20350110-033000")
	w.takeSnapshots()

	w.change(func(c *v1alpha1.Cluster) { c.Spec.Snapshots.TimeZone = "Europe/Atlantis" })
	w.at(10, "12:00:00")
	if c := w.expectSchedule(v1alpha1.ReasonInvalidSchedule); !strings.Contains(c.Message, "spec.snapshots.timeZone") {
		t.Errorf("the message is %q", c.Message)
	}
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Snapshots = nil })
	w.at(11, "12:00:00")
	if c := w.get(); c.Status.Snapshots != nil || meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionSnapshotsUpToDate) != nil {
		t.Errorf("the status is %+v", c.Status)
	}
	w.delete()
	w.settle()
	w.expectNothing()
	w.expectSnapshots("mine", "scheduled-20350107-030000", "scheduled-20350110-033000") // they outlive it
}

// Snapshots that have lost their files do not count, and one of which a Cluster is made is kept until then.
func TestScheduledSnapshotsThatAreKept(t *testing.T) {
	w := newWorld(t)
	w.clock.SetTime(monday)
	w.made(scheduled)
	w.settle()
	for day := range 3 {
		w.at(day+1, "03:00:00")
		w.takeSnapshots()
	}
	lost := w.snapshots()[1]
	w.setTaken(&lost, metav1.ConditionFalse, v1alpha1.ReasonSnapshotLost, "gone")
	w.at(3, "12:00:00")
	w.expectSnapshots("scheduled-20350102-030000", "scheduled-20350103-030000", "scheduled-20350104-030000")
	fork := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: w.name + "-fork"}, Spec: v1alpha1.ClusterSpec{From: &v1alpha1.ClusterSource{Snapshot: w.snapshots()[0].Name}},
	}
	w.do(w.client.Create(t.Context(), fork))
	w.at(4, "03:00:00")
	w.takeSnapshots()
	w.at(4, "03:00:01")
	if n := len(w.snapshots()); n != 3 { // the lost one may go, the one that the fork needs may not
		w.expectSnapshots("scheduled-20350102-030000", "scheduled-20350104-030000", "scheduled-20350105-030000")
	}
	w.do(w.client.Delete(t.Context(), fork))
	w.at(4, "03:00:02")
	w.expectSnapshots("scheduled-20350104-030000", "scheduled-20350105-030000")
}

// A ClusterSnapshot of somebody else with the name of a scheduled one is left alone.
func TestScheduledSnapshotWithATakenName(t *testing.T) {
	w := newWorld(t)
	w.clock.SetTime(monday)
	w.made(scheduled)
	foreign := &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: w.name + "-scheduled-20350102-030000"}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: w.name},
	}
	w.do(w.client.Create(t.Context(), foreign))
	w.at(1, "03:00:00")
	w.expectSchedule(v1alpha1.ReasonErrResourceExists)
	w.expect(v1alpha1.ConditionKubeconfigAvailable, "True", v1alpha1.ReasonKubeconfigWritten)
	w.do(w.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if len(foreign.Labels) > 0 {
		t.Errorf("the foreign one has labels: %v", foreign.Labels)
	}
	w.do(w.client.Delete(t.Context(), foreign))
	w.at(1, "03:00:15")
	w.expectSnapshots("scheduled-20350102-030000")
	w.expectSchedule(v1alpha1.ReasonSnapshotPending)
}
