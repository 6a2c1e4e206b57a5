package crds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	applyv1alpha1 "github.com/keelson-dev/keelson/client/applyconfiguration/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func newClient(t *testing.T) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kubectl scale and autoscalers go this way.
func TestScaleOfAFoo(t *testing.T) {
	foos := newClient(t).SamplecontrollerV1alpha1().Foos(env.Namespace(t))
	foo, err := foos.Create(t.Context(), &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.FooSpec{DeploymentName: "a"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	foo.Status.Replicas, foo.Status.Selector = 1, "x=y"
	if _, err := foos.UpdateStatus(t.Context(), foo, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	scale, err := foos.GetScale(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 1 || scale.Status.Replicas != 1 || scale.Status.Selector != "x=y" {
		t.Errorf("got scale %+v %+v, want 1 of 1 replicas with selector x=y", scale.Spec, scale.Status)
	}
	scale.Spec.Replicas = 3
	if scale, err = foos.UpdateScale(t.Context(), "a", scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	foo, err = foos.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *foo.Spec.Replicas != 3 {
		t.Errorf("the Foo asks for %d replicas after it was scaled to 3", *foo.Spec.Replicas)
	}
	scale.Spec.Replicas = -1
	if _, err := foos.UpdateScale(t.Context(), "a", scale, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("scaled to -1: got %v, want that it is refused", err)
	}
}

func TestStatusIsWrittenApart(t *testing.T) {
	samples := newClient(t).SampleV1().SampleResources(env.Namespace(t))
	sample, err := samples.Create(t.Context(), &samplev1.SampleResource{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       samplev1.SampleResourceSpec{PodImage: "nginx:latest"},
		Status:     samplev1.SampleResourceStatus{PodName: "invented"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := sample.Status.PodName; got != "" {
		t.Errorf("a user set status.podName to %q", got)
	}
	sample.Spec.PodImage, sample.Status.PodName = "changed", "a"
	sample, err = samples.UpdateStatus(t.Context(), sample, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sample.Spec.PodImage != "nginx:latest" || sample.Status.PodName != "a" {
		t.Errorf("after a write of the status: image %q and Pod %q, want nginx:latest and a", sample.Spec.PodImage, sample.Status.PodName)
	}
	if sample.Generation != 1 {
		t.Errorf("generation %d after a write of the status, want 1", sample.Generation)
	}
}

func TestApplyAndExtract(t *testing.T) {
	namespace := env.Namespace(t)
	foos := newClient(t).SamplecontrollerV1alpha1().Foos(namespace)
	applied := applyv1alpha1.Foo("a", namespace).WithSpec(applyv1alpha1.FooSpec().WithDeploymentName("a").WithReplicas(2))
	foo, err := foos.Apply(t.Context(), applied, metav1.ApplyOptions{FieldManager: "test"})
	if err != nil {
		t.Fatal(err)
	}
	extracted, err := applyv1alpha1.ExtractFoo(foo, "test")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(applied, extracted); diff != "" {
		t.Errorf("extracted (-applied +extracted):\n%s", diff)
	}
}
