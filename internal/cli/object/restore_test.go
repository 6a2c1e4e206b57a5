package object

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

// A new request is later than the last one, also within a second.
func TestNewRestore(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	at := func(second int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC)) }
	for _, test := range []struct {
		name string
		keep bool
		last *commonv1.Restore
		done *commonv1.RestoreStatus
		want *commonv1.Restore
	}{
		{"the first", true, nil, nil, &commonv1.Restore{Snapshot: "before", RequestedAt: at(5)}},
		{"without a snapshot of the present state", false, nil, nil, &commonv1.Restore{Snapshot: "before", RequestedAt: at(5), KeepCurrent: ptr.To(false)}},
		{"after one of this second", true, &commonv1.Restore{RequestedAt: at(5)}, nil, &commonv1.Restore{Snapshot: "before", RequestedAt: at(6)}},
		{"after one that was removed", true, nil, &commonv1.RestoreStatus{RequestedAt: at(7)}, &commonv1.Restore{Snapshot: "before", RequestedAt: at(8)}},
	} {
		if diff := cmp.Diff(test.want, NewRestore("before", test.keep, now, test.last, test.done)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
	}
}
