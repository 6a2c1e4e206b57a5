package main

import (
	"context"
	"fmt"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// objectName is the name of the i-th Foo and of its Deployment.
func objectName(i int) string { return fmt.Sprintf("foo-%05d", i) }

func createFoo(ctx context.Context, writer harness.Connection, namespace, name string) (*v1alpha1.Foo, error) {
	return writer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](1)},
	}, metav1.CreateOptions{})
}

func createDeployment(ctx context.Context, writer harness.Connection, deployment *appsv1.Deployment) error {
	_, err := writer.Kube.AppsV1().Deployments(deployment.Namespace).Create(ctx, deployment, metav1.CreateOptions{})
	return err
}

// newDeployment returns what the controller creates for foo; checkFloor verifies it.
func newDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	deployment := newUnowned(foo.Namespace, foo.Spec.DeploymentName, foo.UID)
	deployment.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(foo, v1alpha1.SchemeGroupVersion.WithKind("Foo")),
	}
	return deployment
}

// newUnowned returns the same without a Foo.
func newUnowned(namespace, name string, uid types.UID) *appsv1.Deployment {
	selector := map[string]string{"samplecontroller.k8s.io/foo-uid": string(uid)}
	labels := map[string]string{
		"samplecontroller.k8s.io/foo-uid": string(uid),
		"app.kubernetes.io/name":          "foo",
		"app.kubernetes.io/instance":      name,
		"app.kubernetes.io/managed-by":    "keelson",
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false),
					SecurityContext: &corev1.PodSecurityContext{
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: "foo", Image: v1alpha1.DefaultImage,
						SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
					}},
				},
			},
		},
	}
}

// checkFloor returns an error if the floor does not create what the controller created for a Foo: its work would be less
// or more.
func (b *bench) checkFloor(ctx context.Context, namespace, name string) error {
	foo, err := b.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	deployments := b.Observer.Kube.AppsV1().Deployments(namespace)
	ours, err := deployments.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// A dry run fills in the defaults of the API.
	wanted := newDeployment(foo)
	wanted.Name += "-floor"
	floor, err := deployments.Create(ctx, wanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	type compared struct {
		Labels map[string]string
		Owners []metav1.OwnerReference
		Spec   appsv1.DeploymentSpec
	}
	diff := cmp.Diff(
		compared{ours.Labels, ours.OwnerReferences, ours.Spec},
		compared{floor.Labels, floor.OwnerReferences, floor.Spec},
	)
	if diff != "" {
		return fmt.Errorf("the floor does not create what the controller creates, update newDeployment in bench/foo (-controller +floor):\n%s", diff)
	}
	return nil
}
