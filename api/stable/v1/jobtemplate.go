package v1

import (
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobTemplate is the Job that is created for each run, in one of two forms: with spec
// it is a JobTemplateSpec of batch/v1; without, it is the spec of the pod.
type JobTemplate struct {
	// Labels and annotations of the Jobs.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The Jobs, in full. If it is set, no field of a pod may be set beside it.
	// +optional
	Spec *batchv1.JobSpec `json:"spec,omitempty"`

	// The pod of the Jobs, in short.
	// +optional
	corev1.PodSpec `json:",inline"`
}

// JobTemplateSpec returns the template in its full form, with the default restartPolicy
// Never: that of Pods, Always, is not allowed in a Job. What it returns shares memory
// with t.
func (t *JobTemplate) JobTemplateSpec() batchv1.JobTemplateSpec {
	full := batchv1.JobTemplateSpec{ObjectMeta: t.ObjectMeta}
	if t.Spec != nil {
		full.Spec = *t.Spec
	} else {
		full.Spec.Template.Spec = t.PodSpec
	}
	if pod := &full.Spec.Template.Spec; pod.RestartPolicy == "" {
		pod.RestartPolicy = corev1.RestartPolicyNever
	}
	return full
}

// MarshalJSON writes the form that is in use only: that of a pod has a list of
// containers even when it is empty.
func (t JobTemplate) MarshalJSON() ([]byte, error) {
	if t.Spec != nil {
		return json.Marshal(batchv1.JobTemplateSpec{ObjectMeta: t.ObjectMeta, Spec: *t.Spec})
	}
	type short struct {
		ObjectMeta     metav1.ObjectMeta `json:"metadata,omitzero"`
		corev1.PodSpec `json:",inline"`
	}
	raw, err := json.Marshal(short{ObjectMeta: t.ObjectMeta, PodSpec: t.PodSpec})
	if err != nil {
		return nil, fmt.Errorf("write a job template: %w", err)
	}
	return raw, nil
}
