package foo

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

func TestSummarize(t *testing.T) {
	foo := newFoo()
	quota := apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("exceeded quota: few"))
	for _, test := range []struct {
		name      string
		foo       *v1alpha1.Foo
		seen      observation
		actErr    error
		available int32
		// replicas is the number of Pods; zero means 3 if some are available.
		replicas int32
		want     metav1.Condition
	}{
		{
			name: "all replicas are available",
			seen: see(foo, ownedBy(foo)), available: 3,
			want: metav1.Condition{Status: "True", Reason: "Available", Message: `All replicas of Deployment "web" are available`},
		},
		{
			name: "no replicas are wanted and none is there",
			foo:  newFoo(func(f *v1alpha1.Foo) { *f.Spec.Replicas = 0 }),
			seen: see(foo, ownedBy(newFoo(func(f *v1alpha1.Foo) { *f.Spec.Replicas = 0 }))),
			want: metav1.Condition{Status: "True", Reason: "Available", Message: `All replicas of Deployment "web" are available`},
		},
		{
			name: "one replica is not available",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 })), available: 2,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Not all replicas of Deployment "web" are available yet`},
		},
		{
			name: "the Deployment makes no progress",
			seen: see(foo, ownedBy(foo, unavailable, stuck(appsv1.DeploymentProgressing, "False", "ProgressDeadlineExceeded", "it has timed out"))), available: 2,
			want: metav1.Condition{Status: "False", Reason: "RolloutStuck", Message: `Deployment "web" is stuck: ProgressDeadlineExceeded: it has timed out. ` +
				"To see the events of its Pods, run: kubectl describe pods --namespace market --selector " + selectorText(foo)},
		},
		{
			name: "a quota refuses its Pods, so that it makes no progress",
			seen: see(foo, ownedBy(foo, unavailable, stuck(appsv1.DeploymentProgressing, "False", "ProgressDeadlineExceeded", "it has timed out"),
				stuck(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", "exceeded quota"))), available: 2,
			want: metav1.Condition{Status: "False", Reason: "RolloutStuck", Message: `Deployment "web" is stuck: FailedCreate: exceeded quota. ` +
				"To see the events of its Pods, run: kubectl describe pods --namespace market --selector " + selectorText(foo)},
		},
		{
			name: "a Pod does not become ready",
			seen: withProblem(see(foo, ownedBy(foo, unavailable)), `Container "app" of Pod "web-1" waits: ImagePullBackOff, image "nope"`), available: 2,
			want: metav1.Condition{Status: "False", Reason: "RolloutStuck", Message: `Deployment "web" is stuck: Container "app" of Pod "web-1" waits: ImagePullBackOff, image "nope". ` +
				"To see the events of its Pods, run: kubectl describe pods --namespace market --selector " + selectorText(foo)},
		},
		{
			name: "the Deployment was stuck before it was changed",
			seen: see(foo, ownedBy(foo, unavailable, stuck(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", "exceeded quota"),
				func(d *appsv1.Deployment) { d.Generation = 2 })), available: 2,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Not all replicas of Deployment "web" are available yet`},
		},
		{
			name: "the Deployment makes progress",
			seen: see(foo, ownedBy(foo, unavailable, stuck(appsv1.DeploymentProgressing, "True", "ReplicaSetUpdated", "it does"))), available: 2,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Not all replicas of Deployment "web" are available yet`},
		},
		{
			name: "the controller of Deployments has not seen the change: its numbers are about the old one",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) { d.Generation = 2 })), available: 3,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Not all replicas of Deployment "web" are available yet`},
		},
		{
			name: "a pod of the old image still runs",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) { d.Status.Replicas = 4 })), replicas: 4, available: 3,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Not all replicas of Deployment "web" are available yet`},
		},
		{
			name: "the Deployment was created just now",
			seen: see(foo),
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Deployment "web" was written and is not available yet`},
		},
		{
			name: "the Deployment was put right just now: what it reports is about what it was",
			seen: see(foo, ownedBy(foo, scaled(5))), available: 3,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Deployment "web" was written and is not available yet`},
		},
		{
			name: "the Deployment is being deleted",
			seen: see(foo, ownedBy(foo, deleted)), available: 3,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Deployment "web" is being deleted; a new one is created afterwards`},
		},
		{
			name: "the Deployment of an earlier Foo is in the way for a moment",
			seen: see(foo, ownedBy(foo, ofEarlierFoo)),
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Deployment "web" of an earlier Foo with this name is about to be deleted; a new one is created afterwards`},
		},
		{
			name: "the Deployment has a selector that cannot be changed",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels = nil })), available: 3,
			want: metav1.Condition{Status: "False", Reason: "Progressing", Message: `Deployment "web" has another selector, which is immutable; it is deleted and created again`},
		},
		{
			name: "the Deployment is someone else's",
			seen: see(foo, ownedBy(foo, orphaned)),
			want: metav1.Condition{Status: "False", Reason: "ErrResourceExists", Message: `Deployment "web" exists and has no owner. Change spec.deploymentName or delete that Deployment`},
		},
		{
			name: "the Deployment turned out to be someone else's",
			seen: see(foo), actErr: fmt.Errorf("create: %w", kube.ErrNotOwned),
			want: metav1.Condition{Status: "False", Reason: "ErrResourceExists", Message: `Deployment "web" exists and does not belong to this Foo. Change spec.deploymentName or delete that Deployment`},
		},
		{
			name: "a quota refused the Deployment",
			seen: see(foo), actErr: fmt.Errorf("create: %w", quota),
			want: metav1.Condition{Status: "False", Reason: "DeploymentRejected", Message: `The API rejected Deployment "web": deployments.apps "web" is forbidden: exceeded quota: few. Change the Foo, or the policy or quota that rejected it`},
		},
		{
			name: "the API server has a problem",
			seen: see(foo), actErr: fmt.Errorf("create: %w", apierrors.NewInternalError(errors.New("no webhook"))),
			want: metav1.Condition{Status: "False", Reason: "DeploymentWriteFailed", Message: `Deployment "web" could not be written, the write is retried: Internal error occurred: no webhook`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.foo == nil {
				test.foo = foo
			}
			test.want.Type, test.want.ObservedGeneration = "Ready", 2
			test.want.LastTransitionTime = metav1.NewTime(noon)
			replicas := test.replicas
			if replicas == 0 && test.available > 0 {
				replicas = 3
			}
			want := v1alpha1.FooStatus{
				Replicas: replicas, AvailableReplicas: test.available, ObservedGeneration: 2,
				Selector: "samplecontroller.k8s.io/foo-uid=foo-1", Conditions: []metav1.Condition{test.want},
			}
			got := summarize(test.foo, test.seen, decide(test.foo, test.seen, noon), test.actErr)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("summarize (-want +got):\n%s", diff)
			}
		})
	}
}

func withProblem(seen observation, problem string) observation {
	seen.podProblem = problem
	return seen
}

func TestSummarizeKeepsTheTimeOfTheTransition(t *testing.T) {
	foo := newFoo()
	seen := see(foo, ownedBy(foo))
	foo.Status = summarize(foo, seen, decide(foo, seen, noon), nil)
	later := noon.Add(time.Hour)
	if diff := cmp.Diff(foo.Status, summarize(foo, seen, decide(foo, seen, later), nil)); diff != "" {
		t.Errorf("nothing happened for an hour, and the status changed (-before +after):\n%s", diff)
	}
	seen = see(foo, ownedBy(foo, deleted))
	got := summarize(foo, seen, decide(foo, seen, later), nil)
	if at := got.Conditions[0].LastTransitionTime; !at.Equal(&metav1.Time{Time: later}) {
		t.Errorf("Ready changed at %v, and says %v", later, at)
	}
}

func TestIsUrgent(t *testing.T) {
	ready := func(status metav1.ConditionStatus, reason, message string, generation int64) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: message, ObservedGeneration: generation}
	}
	none := metav1.Condition{}
	progressing := ready("False", "Progressing", "a", 1)
	available := ready("True", "Available", "a", 1)
	for _, test := range []struct {
		name    string
		was, is metav1.Condition
		want    bool
	}{
		{"a new Foo makes progress", none, progressing, false},
		{"a new Foo is available at once", none, available, true},
		{"it becomes available", progressing, available, true},
		{"it is available with the changed spec", available, ready("True", "Available", "a", 2), true},
		{"only a number changed", available, available, false},
		{"a pod is gone", available, progressing, false},
		{"its Deployment is someone else's", none, ready("False", "ErrResourceExists", "a", 1), true},
		{"the API refuses its Deployment", progressing, ready("False", "DeploymentRejected", "a", 1), true},
		{"the API refuses it for another reason", ready("False", "DeploymentRejected", "b", 1), ready("False", "DeploymentRejected", "a", 1), true},
		{"the API server has a problem, perhaps a short one", progressing, ready("False", "DeploymentWriteFailed", "a", 1), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := isUrgent(test.was, test.is); got != test.want {
				t.Errorf("isUrgent = %t", got)
			}
		})
	}
}
