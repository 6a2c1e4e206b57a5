package main

import (
	"context"
	"fmt"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

// newDeployment returns what the controller creates for foo; checkFloor makes sure of it.
func newDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	deployment := newUnowned(foo.Namespace, foo.Spec.DeploymentName, foo.UID)
	deployment.OwnerReferences = []metav1.OwnerReference{
		*metav1.NewControllerRef(foo, v1alpha1.SchemeGroupVersion.WithKind("Foo")),
	}
	return deployment
}

// newPlainDeployment returns the same without a Foo.
func newPlainDeployment(namespace, name string) *appsv1.Deployment {
	return newUnowned(namespace, name, uuid.NewUUID())
}

func newUnowned(namespace, name string, uid types.UID) *appsv1.Deployment {
	replicas, no := int32(1), false
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
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: &no,
					SecurityContext: &corev1.PodSecurityContext{
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{{
						Name: "foo", Image: v1alpha1.DefaultImage,
						SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no},
					}},
				},
			},
		},
	}
}

// checkFloor returns an error if what the floors create is not what the controller has created for a Foo: they would
// have less work, or more.
func (b *bench) checkFloor(ctx context.Context, namespace, name string) error {
	foo, err := b.cluster.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	deployments := b.cluster.Observer.Kube.AppsV1().Deployments(namespace)
	ours, err := deployments.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// The API fills in defaults; a dry run has it do so.
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
		return fmt.Errorf("the floors do not create what the controller creates, bring newDeployment in bench/foo up to date (-controller +floor):\n%s", diff)
	}
	return nil
}
