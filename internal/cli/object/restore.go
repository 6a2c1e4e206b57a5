package object

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/requests"
)

// NewRestore returns a new request, given the last one and its result, which may be nil.
func NewRestore(snapshot string, keep bool, now time.Time, last *commonv1.Restore, done *commonv1.RestoreStatus) *commonv1.Restore {
	var used []*metav1.Time
	if last != nil {
		used = append(used, &last.RequestedAt)
	}
	if done != nil {
		used = append(used, &done.RequestedAt)
	}
	r := &commonv1.Restore{Snapshot: snapshot, RequestedAt: requests.Next(now, used...)}
	if !keep {
		r.KeepCurrent = &keep
	}
	return r
}

// Restore is what the status of an object says about a requested restore in place.
type Restore struct {
	// Noun and Name are what is restored.
	Noun, Name string
	Generation int64
	Conditions []metav1.Condition
	// Ended means that the restore has ended, Failed that it has failed because of Message.
	Ended, Failed bool
	Message       string
}

// IsComplete reports whether the restore is done and the object is ready, otherwise what it waits for. It fails when the restore has
// failed.
func (r Restore) IsComplete() (bool, string, error) {
	words := func(condition *metav1.Condition) string {
		if condition == nil || condition.ObservedGeneration != r.Generation {
			return r.Name + ": the restore has not begun"
		}
		return r.Name + ": " + strings.Join(strings.Fields(condition.Message), " ")
	}
	switch {
	case !r.Ended:
		return false, words(meta.FindStatusCondition(r.Conditions, "Restored")), nil
	case r.Failed:
		return false, "", fmt.Errorf("%s %s was not restored: %s", r.Noun, r.Name, r.Message)
	}
	ready := meta.FindStatusCondition(r.Conditions, "Ready")
	return ready != nil && ready.Status == metav1.ConditionTrue, words(ready), nil
}
