// Package statuscheck checks the invariants of the status of all kinds. Tests run it at their end
// on every object that they created.
package statuscheck

import (
	"fmt"
	"regexp"
	"testing"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reasonForm is the form of a reason according to the API conventions.
var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// Verify fails the test for each object whose status breaks a rule. The objects must have settled:
// their controller has nothing left to write.
func Verify(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		for _, problem := range Problems(object) {
			t.Errorf("%T %s/%s: %s", object, object.GetNamespace(), object.GetName(), problem)
		}
	}
}

// status is the common part of all kinds.
type status struct {
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// Problems returns the rules that the status of a settled object breaks.
func Problems(object client.Object) []string {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return []string{fmt.Sprintf("cannot be converted: %v", err)}
	}
	var got status
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &got); err != nil {
		return []string{fmt.Sprintf("has an invalid status: %v", err)}
	}
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	generation := object.GetGeneration()
	if got.Status.ObservedGeneration != generation {
		wrong("status.observedGeneration is %d, the generation is %d", got.Status.ObservedGeneration, generation)
	}
	seen := map[string]bool{}
	for _, condition := range got.Status.Conditions {
		name := condition.Type
		if seen[name] {
			wrong("condition %s is duplicated", name)
		}
		seen[name] = true
		if condition.ObservedGeneration != generation {
			wrong("condition %s has observedGeneration %d, the generation is %d", name, condition.ObservedGeneration, generation)
		}
		if !reasonForm.MatchString(condition.Reason) {
			wrong("condition %s has reason %q, which is not in camel case", name, condition.Reason)
		}
		if condition.Message == "" {
			wrong("condition %s has no message", name)
		}
		if condition.LastTransitionTime.IsZero() {
			wrong("condition %s has no lastTransitionTime", name)
		}
		switch condition.Status {
		case metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown:
		default:
			wrong("condition %s has status %q", name, condition.Status)
		}
	}
	if !seen["Ready"] {
		wrong("condition Ready is missing")
		return problems
	}
	// Tools such as Flux and Argo CD take an object for healthy if Ready is True, and wait otherwise.
	want := kstatus.InProgressStatus
	if meta.IsStatusConditionTrue(got.Status.Conditions, "Ready") {
		want = kstatus.CurrentStatus
	}
	switch is, err := kstatus.Compute(&unstructured.Unstructured{Object: raw}); {
	case object.GetDeletionTimestamp() != nil, got.Status.ObservedGeneration != generation: // they wait
	case err != nil:
		wrong("has no status for kstatus: %v", err)
	case is.Status != want:
		wrong("kstatus says %s: %s", is.Status, is.Message)
	}
	return problems
}
