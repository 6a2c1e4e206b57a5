package main

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

// objectName is the name of the i-th Foo and of its Deployment.
func objectName(i int) string { return fmt.Sprintf("foo-%05d", i) }

// newDeployment returns what the controller would create for foo, a copy of what it has created for another.
func (b *bench) newDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	owner := metav1.GetControllerOf(b.model)
	adapt := func(labels map[string]string) map[string]string {
		adapted := maps.Clone(labels)
		for key, value := range labels {
			switch value {
			case string(owner.UID):
				adapted[key] = string(foo.UID)
			case owner.Name:
				adapted[key] = foo.Name
			}
		}
		return adapted
	}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: foo.Namespace, Name: foo.Name, Labels: adapt(b.model.Labels), Annotations: b.model.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, v1alpha1.SchemeGroupVersion.WithKind("Foo"))},
		},
		Spec: *b.model.Spec.DeepCopy(),
	}
	deployment.Spec.Selector.MatchLabels = adapt(b.model.Spec.Selector.MatchLabels)
	deployment.Spec.Template.Labels = adapt(b.model.Spec.Template.Labels)
	return deployment
}
