package crontab

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// A run on demand has its values, and a scheduled one the defaults.
func TestParameters(t *testing.T) {
	f := newFixture(t)
	f.create(withParameters, func(c *stablev1.CronTab) {
		c.Spec.JobTemplate.Annotations = map[string]string{stablev1.ParametersAnnotation: "of a copied Job"}
	})
	known := map[string]bool{}
	expect := func(jobs int, values string, env ...corev1.EnvVar) {
		t.Helper()
		f.reconcileUntilStable()
		all := f.jobs()
		if len(all) != jobs {
			t.Fatalf("there are %d Jobs, want %d", len(all), jobs)
		}
		last := slices.DeleteFunc(all, func(job batchv1.Job) bool { return known[job.Name] })[0]
		known[last.Name] = true
		if got := last.Annotations[stablev1.ParametersAnnotation]; got != values {
			t.Errorf("the annotation is %q, want %q", got, values)
		}
		if diff := cmp.Diff(env, last.Spec.Template.Spec.Containers[0].Env); diff != "" {
			t.Errorf("the variables (-want +got):\n%s", diff)
		}
	}
	ask := func(name, value string) {
		t.Helper()
		f.update(withRequest(formatRequest(crontab.NewRequest(f.Object(), f.Clock.Now()).Time)), withValue(name, value))
	}
	note := corev1.EnvVar{Name: "note"}
	expect(1, `{"note":"","region":"us"}`, note, corev1.EnvVar{Name: "region", Value: "us"})
	ask("region", "eu")
	expect(2, `{"note":"","region":"eu"}`, note, corev1.EnvVar{Name: "region", Value: "eu"})

	// Without the webhook.
	f.update(func(c *stablev1.CronTab) {
		c.Spec.JobTemplate.Containers[0].Env = []corev1.EnvVar{{Name: "region", Value: "mars"}}
	})
	ask("note", "hello")
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionReady, metav1.ConditionFalse, stablev1.ReasonInvalidParameters, "No run starts: spec.parameters[0].name: Invalid value: "+
		`"region": container main of spec.jobTemplate sets this variable itself. Remove it there, or rename the parameter`)
	f.update(func(c *stablev1.CronTab) { c.Spec.JobTemplate.Containers[0].Env = nil })
	expect(3, `{"note":"hello","region":"us"}`, corev1.EnvVar{Name: "note", Value: "hello"}, corev1.EnvVar{Name: "region", Value: "us"})
}
