package kube

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConditionTransition returns a condition before and after a change. A missing condition is returned as its zero value.
func ConditionTransition(before, after []metav1.Condition, condition string) (was, is metav1.Condition) {
	if found := meta.FindStatusCondition(before, condition); found != nil {
		was = *found
	}
	if found := meta.FindStatusCondition(after, condition); found != nil {
		is = *found
	}
	return was, is
}

// SetConditions sets conditions of an object, of its present generation, at a time.
func SetConditions(object client.Object, all *[]metav1.Condition, at time.Time, conditions ...metav1.Condition) {
	for _, condition := range conditions {
		condition.ObservedGeneration, condition.LastTransitionTime = object.GetGeneration(), metav1.NewTime(at)
		meta.SetStatusCondition(all, condition)
	}
}

// Sentence capitalizes the first letter of the message of a condition: many come from errors.
func Sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
