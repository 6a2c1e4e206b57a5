package v1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// Without a restartPolicy the API server would use Always, which it rejects in a Job.
func TestDefaultRestartPolicy(t *testing.T) {
	full := batchv1.JobSpec{}
	for _, template := range []stablev1.JobTemplate{{}, {Spec: &full}} {
		if got := template.JobTemplateSpec().Spec.Template.Spec.RestartPolicy; got != corev1.RestartPolicyNever {
			t.Errorf("the default of %+v is %q", template, got)
		}
	}
	if full.Template.Spec.RestartPolicy != "" {
		t.Error("the template was modified")
	}
	kept := stablev1.JobTemplate{PodSpec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure}}
	if got := kept.JobTemplateSpec().Spec.Template.Spec.RestartPolicy; got != corev1.RestartPolicyOnFailure {
		t.Errorf("OnFailure became %q", got)
	}
}

// Both forms are written as they were read, and mean the same Job.
func TestJobTemplate(t *testing.T) {
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox", Resources: corev1.ResourceRequirements{}}}}
	var seconds int64 = 5
	for _, test := range []struct {
		name, text string
		want       batchv1.JobTemplateSpec
	}{
		{
			name: "the short form",
			text: `{"containers":[{"name":"main","image":"busybox","resources":{}}],"restartPolicy":"Never"}`,
			want: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}}},
		},
		{
			name: "the full form",
			text: `{"metadata":{"labels":{"a":"b"}},"spec":{"activeDeadlineSeconds":5,"template":{"metadata":{},"spec":{"containers":[{"name":"main","image":"busybox","resources":{}}],"restartPolicy":"Never"}}}}`,
			want: func() batchv1.JobTemplateSpec {
				full := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{ActiveDeadlineSeconds: &seconds, Template: corev1.PodTemplateSpec{Spec: pod}}}
				full.Labels = map[string]string{"a": "b"}
				return full
			}(),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var template stablev1.JobTemplate
			if err := json.Unmarshal([]byte(test.text), &template); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, template.JobTemplateSpec()); diff != "" {
				t.Errorf("the Job (-want +got):\n%s", diff)
			}
			raw, err := json.Marshal(template)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := json.Unmarshal([]byte(test.text), &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("written again (-want +got):\n%s", diff)
			}
		})
	}
}
