package kubeconfig

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of a Kubeconfig and the time until the next reconcile.
func summarize(k *v1alpha1.Kubeconfig, seen observation, now time.Time) (v1alpha1.KubeconfigStatus, time.Duration) {
	status := *k.Status.DeepCopy()
	status.ObservedGeneration = k.Generation
	status.Server, status.NotAfter, status.LastRotated = "", nil, nil
	again := recheck
	ready := metav1.Condition{Status: metav1.ConditionFalse}
	switch access := seen.access; {
	case seen.missing != "":
		ready.Reason, ready.Message = v1alpha1.ReasonNoKubeconfig, seen.missing
	case seen.invalid != "":
		ready.Reason, ready.Message = v1alpha1.ReasonKubeconfigInvalid, seen.invalid
	default:
		status.Server = access.Server
		if !access.NotAfter.IsZero() {
			status.NotAfter, status.LastRotated = newTime(access.NotAfter), newTime(access.NotBefore)
		}
		if left := access.NotAfter.Sub(now); !access.NotAfter.IsZero() && left <= 0 {
			ready.Reason = v1alpha1.ReasonKubeconfigExpired
			ready.Message = fmt.Sprintf("The client certificate expired at %s", access.NotAfter.UTC().Format(time.RFC3339))
		} else {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The kubeconfig is valid"
			if left > 0 {
				again = min(again, left)
			}
		}
	}
	ready.Type = v1alpha1.ConditionReady
	conditions := status.Conditions[:0]
	for _, c := range status.Conditions {
		if c.Reason != "" { // the original controller stored conditions without a reason
			conditions = append(conditions, c)
		}
	}
	status.Conditions = conditions
	kube.SetConditions(k, &status.Conditions, now, ready)
	return status, again
}

// newTime returns a time in whole seconds, as the API stores it.
func newTime(t time.Time) *metav1.Time {
	stored := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &stored
}
