package crontab

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// A run on demand has its values, a scheduled one the defaults, and one whose values do not fit holds up no other.
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
	ask("region", "eu")
	expect(1, `{"note":"","region":"eu"}`, note, corev1.EnvVar{Name: "region", Value: "eu"})

	// The CRD refuses a request that does not fit, but not a change of parameters while it waits.
	f.update(withPolicy(stablev1.ForbidConcurrent))
	ask("note", "hello")
	f.reconcileUntilStable()
	f.update(withPolicy(stablev1.AllowConcurrent), func(c *stablev1.CronTab) { c.Spec.Parameters = c.Spec.Parameters[:1] })
	f.reconcileUntilStable()
	f.expectCondition(stablev1.ConditionReady, metav1.ConditionFalse, stablev1.ReasonInvalidParameters, fmt.Sprintf(`The run requested at %s does not start: `+
		`there is no parameter "note" in spec.parameters: "region". Correct spec.runParameters, or remove spec.runRequestedAt`, formatRequest(crontab.OpenRequest(f.Object()))))
	f.advanceToNextRun()
	expect(2, `{"region":"us"}`, corev1.EnvVar{Name: "region", Value: "us"})
	f.update(withValue("region", "eu"))
	expect(3, `{"region":"eu"}`, corev1.EnvVar{Name: "region", Value: "eu"})
	f.expectCondition(stablev1.ConditionReady, metav1.ConditionTrue, stablev1.ReasonScheduled, "The next run is scheduled")
}
