package snapshots

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

var noon = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC)

// of returns what has a schedule of snapshots each hour, and has decided until 11:30.
func of(changes ...func(*Of)) Of {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "team", Generation: 2, CreationTimestamp: metav1.NewTime(noon.Add(-48 * time.Hour))}}
	of := Of{
		Object: object, Kind: "Snapshot", Spec: commonv1.SnapshotSchedule{Schedule: "0 * * * *", Keep: ptr.To[int32](2)},
		Status: commonv1.SnapshotScheduleStatus{Schedule: "0 * * * * UTC", DecidedUntil: &metav1.Time{Time: noon.Add(-30 * time.Minute)}},
	}
	for _, change := range changes {
		change(&of)
	}
	return of
}

// made returns a snapshot that the schedule made some hours ago. Without a reason it is ready.
func made(hours int, reason string) Snapshot {
	at := noon.Add(-time.Duration(hours) * time.Hour)
	s := Snapshot{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: NameOf("web", at), CreationTimestamp: metav1.NewTime(at)}}, TakenAt: &metav1.Time{Time: at}}
	s.Ready = &metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSnapshotTaken, Message: "taken"}
	if reason != "" {
		s.Ready = &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: "no space left"}
	}
	return s
}

func pending(hours int) Snapshot {
	s := made(hours, "SnapshotFailed")
	s.TakenAt = nil
	return s
}

// by returns a snapshot that was made some hours ago, while a clock was years ahead.
func by(wrong string, hours int) Snapshot {
	s := made(hours, "")
	ahead := metav1.NewTime(noon.AddDate(9, 0, 0))
	s.TakenAt = &ahead
	if wrong == "the API server" {
		s.SetCreationTimestamp(ahead)
		s.SetName(NameOf("web", ahead.Time))
	}
	return s
}

func TestDecide(t *testing.T) {
	type result struct {
		Create, Again string
		Prune         []string
		Reason        string
	}
	short := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return at.UTC().Format("15:04")
	}
	for _, test := range []struct {
		name      string
		of        Of
		scheduled []Snapshot
		want      result
	}{
		{"due", of(), nil, result{"12:00", "13:00", nil, v1alpha1.ReasonSnapshotPending}},
		{"due after others", of(), []Snapshot{made(1, ""), made(2, "")}, result{"12:00", "13:00", nil, v1alpha1.ReasonSnapshotPending}},
		{"made by a manager that did not write that down", of(), []Snapshot{made(0, "")}, result{"", "13:00", nil, v1alpha1.ReasonSnapshotTaken}},
		{"the one before is not taken", of(), []Snapshot{pending(1)}, result{"", "13:00", nil, v1alpha1.ReasonSnapshotPending}},
		{"decided already", of(func(of *Of) { of.Status.DecidedUntil.Time = noon }), nil, result{"", "13:00", nil, v1alpha1.ReasonNotDue}},
		{"decided by a clock that was wrong", of(func(of *Of) { of.Status.DecidedUntil.Time = noon.Add(time.Hour) }), nil, result{"", "13:00", nil, v1alpha1.ReasonNotDue}},
		{"another schedule", of(func(of *Of) { of.Spec.TimeZone = "Asia/Kolkata" }), nil, result{"", "12:30", nil, v1alpha1.ReasonNotDue}},
		{"idle", of(func(of *Of) { of.Idle = &metav1.Condition{Reason: "Off", Message: "off"} }), nil, result{"", "13:00", nil, "Off"}},
		{"suspended", of(func(of *Of) { of.Spec.Suspend = true }), []Snapshot{made(1, "")}, result{"", "", nil, v1alpha1.ReasonSuspended}},
		{"a mistake", of(func(of *Of) { of.Spec.Schedule = "61 * * * *" }), nil, result{"", "", nil, v1alpha1.ReasonInvalidSchedule}},
		{"too many", of(), []Snapshot{made(3, ""), made(1, ""), made(2, "")}, result{"12:00", "13:00", []string{NameOf("web", noon.Add(-3*time.Hour))}, v1alpha1.ReasonSnapshotPending}},
		{"a lost one does not count", of(), []Snapshot{made(3, ""), made(2, "SnapshotLost"), made(1, "")}, result{"12:00", "13:00", nil, v1alpha1.ReasonSnapshotPending}},
		{"the last one is lost", of(func(of *Of) { of.Status.DecidedUntil.Time = noon }), []Snapshot{made(2, ""), made(1, "SnapshotLost")},
			result{"", "13:00", nil, v1alpha1.ReasonSnapshotNotAvailable}},
		{"the last one is lost, and the next one is due", of(), []Snapshot{made(1, "SnapshotLost")}, result{"12:00", "13:00", nil, v1alpha1.ReasonSnapshotPending}},
		{"one before the last is lost", of(func(of *Of) { of.Status.DecidedUntil.Time = noon }), []Snapshot{made(2, "SnapshotLost"), made(1, "")},
			result{"", "13:00", nil, v1alpha1.ReasonSnapshotTaken}},
		{"the clock of the host was ahead", of(), []Snapshot{by("the host", 3), made(1, ""), made(2, "")},
			result{"12:00", "13:00", []string{NameOf("web", noon.Add(-3*time.Hour))}, v1alpha1.ReasonSnapshotPending}},
		{"all clocks were ahead", of(), []Snapshot{by("the API server", 3), made(1, ""), made(2, "")},
			result{"12:00", "13:00", []string{NameOf("web", noon.AddDate(9, 0, 0))}, v1alpha1.ReasonSnapshotPending}},
		{"old ones are deleted while suspended, too", of(func(of *Of) { of.Spec.Suspend, of.Spec.Keep = true, ptr.To[int32](1) }), []Snapshot{made(2, ""), made(1, "")},
			result{"", "", []string{NameOf("web", noon.Add(-2*time.Hour))}, v1alpha1.ReasonSuspended}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := Decide(test.of, test.scheduled, noon)
			got := result{Create: short(p.Create), Again: short(p.Again), Reason: p.Condition.Reason}
			for _, old := range p.Prune {
				got.Prune = append(got.Prune, old.GetName())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// The kinds have the same words.
func TestTheKindsHaveTheSameWords(t *testing.T) {
	clusters := []any{
		v1alpha1.ConditionSnapshotsUpToDate, v1alpha1.ReasonSnapshotTaken, v1alpha1.ReasonNotDue, v1alpha1.ReasonSnapshotPending, v1alpha1.ReasonSuspended, v1alpha1.ReasonSnapshotNotAvailable,
		v1alpha1.ReasonInvalidSchedule, v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonNotObserved,
	}
	machines := []any{
		virtualmachinev1alpha1.ConditionSnapshotsUpToDate, virtualmachinev1alpha1.ReasonSnapshotTaken, virtualmachinev1alpha1.ReasonNotDue,
		virtualmachinev1alpha1.ReasonSnapshotPending, virtualmachinev1alpha1.ReasonSuspended, virtualmachinev1alpha1.ReasonSnapshotNotAvailable, virtualmachinev1alpha1.ReasonInvalidSchedule,
		virtualmachinev1alpha1.ReasonErrResourceExists, virtualmachinev1alpha1.ReasonNotObserved,
	}
	if diff := cmp.Diff(clusters, machines); diff != "" {
		t.Errorf("words (-Cluster +VirtualMachine):\n%s", diff)
	}
}
