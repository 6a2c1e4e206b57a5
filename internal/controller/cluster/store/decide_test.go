package store

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

var noon = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC)

const here = "/mnt/demo/before-uid"

// snapshotWith returns a ClusterSnapshot that is taken.
func snapshotWith(changes ...func(*v1alpha1.ClusterSnapshot)) *v1alpha1.ClusterSnapshot {
	s := &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "before", UID: "uid"}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: "demo"},
		Status: v1alpha1.ClusterSnapshotStatus{TakenAt: &metav1.Time{Time: noon}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func claimed(s *v1alpha1.ClusterSnapshot) { s.Finalizers = []string{v1alpha1.StoreFinalizer} }
func pending(s *v1alpha1.ClusterSnapshot) { s.Status.TakenAt = nil }
func deleted(s *v1alpha1.ClusterSnapshot) { s.DeletionTimestamp = &metav1.Time{Time: noon} }
func keeping(s *v1alpha1.ClusterSnapshot) {
	s.Annotations = map[string]string{v1alpha1.AnnotationKeepCopy: "true"}
}
func imported(s *v1alpha1.ClusterSnapshot) { s.Spec.Stored, s.Status.TakenAt = "old-1", nil }

func storedIn(location string) func(*v1alpha1.ClusterSnapshot) {
	return func(s *v1alpha1.ClusterSnapshot) {
		s.Status.Location = location
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStored, Status: metav1.ConditionTrue}}
	}
}

func TestDecide(t *testing.T) {
	present, absent := observation{present: true, hasStore: true, location: here}, observation{hasStore: true, location: here}
	none := observation{present: true}
	for _, test := range []struct {
		name  string
		s     *v1alpha1.ClusterSnapshot
		seen  observation
		want  action
		leave bool
	}{
		{"not taken yet", snapshotWith(pending), absent, wait, false},
		{"taken", snapshotWith(), present, claim, false},
		{"taken and claimed", snapshotWith(claimed), present, upload, false},
		{"stored", snapshotWith(claimed, storedIn(here)), present, keep, false},
		{"stored in another store", snapshotWith(claimed, storedIn("/old/demo/before-uid")), present, upload, false},
		{"stored, and lost on this host", snapshotWith(claimed, storedIn(here)), absent, download, false},
		{"lost, and perhaps stored by a manager that was killed", snapshotWith(claimed), absent, download, false},
		{"named copy", snapshotWith(imported), absent, claim, false},
		{"named copy, claimed", snapshotWith(imported, claimed), absent, download, false},
		{"named copy, read", snapshotWith(imported, claimed), present, keep, false},
		{"unreadable files", snapshotWith(claimed), observation{hasStore: true, err: errDamaged}, unreadable, false},
		{"no store", snapshotWith(), none, ignore, false},
		{"no store, and lost", snapshotWith(storedIn(here)), observation{}, noStore, false},
		{"no store, and a named copy", snapshotWith(imported), observation{}, noStore, false},
		{"deleted", snapshotWith(claimed, deleted), present, remove, false},
		{"deleted, and nothing was copied", snapshotWith(deleted), present, ignore, false},
		{"deleted without its copy", snapshotWith(claimed, deleted, keeping), present, remove, true},
		{"deleted, and the store was taken away", snapshotWith(claimed, deleted), none, remove, true},
		{"deleted, and the copy is of another ClusterSnapshot", snapshotWith(imported, claimed, deleted), present, remove, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if p := decide(test.s, test.seen, noon); p.action != test.want || p.leave != test.leave {
				t.Errorf("got %s, leave %t, want %s, leave %t", p.action, p.leave, test.want, test.leave)
			}
		})
	}
}

// A file name has at most 255 bytes.
func TestNameOfCopy(t *testing.T) {
	long := snapshotWith(func(s *v1alpha1.ClusterSnapshot) { s.Name = strings.Repeat("a", 253) })
	for s, want := range map[*v1alpha1.ClusterSnapshot]string{snapshotWith(): "demo/before-uid", snapshotWith(imported): "demo/old-1"} {
		if got := nameOf(s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := nameOf(long); len(got) > len("demo/")+253 || !strings.HasSuffix(got, "-uid") {
		t.Errorf("got %s", got)
	}
}
