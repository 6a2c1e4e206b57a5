package object

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
