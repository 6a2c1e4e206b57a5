package foo

import (
	"encoding/json"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// newFoo returns a Foo as the API server has it, with the Deployment web.
func newFoo(change ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "market", UID: "foo-1", Generation: 2},
		Spec:       v1alpha1.FooSpec{DeploymentName: "web", Replicas: ptr.To[int32](3), Image: "nginx:1.29"},
	}
	for _, change := range change {
		change(foo)
	}
	return foo
}

// ownedBy returns the Deployment that foo asks for, as the API server has it after it
// was created, and rolled out.
func ownedBy(foo *v1alpha1.Foo, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	deployment := must(asObject(newDeployment(foo)))
	deployment.UID = types.UID("deployment-" + deployment.Name)
	deployment.Generation = 1
	deployment.Status = rolledOut(deployment)
	for _, change := range change {
		change(deployment)
	}
	return deployment
}

// rolledOut returns the status of a Deployment of which all replicas are available.
func rolledOut(deployment *appsv1.Deployment) appsv1.DeploymentStatus {
	replicas := ptr.Deref(deployment.Spec.Replicas, 1)
	return appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas,
		ReadyReplicas: replicas, AvailableReplicas: replicas,
	}
}

// see returns an observation of these Deployments, each as what it is to foo.
func see(foo *v1alpha1.Foo, deployments ...*appsv1.Deployment) observation {
	var seen observation
	for _, deployment := range deployments {
		if metav1.IsControlledBy(deployment, foo) {
			seen.owned = append(seen.owned, *deployment)
		} else if deployment.Name == foo.Spec.DeploymentName {
			seen.other = deployment
		}
	}
	return seen
}

func deleted(d *appsv1.Deployment)  { d.DeletionTimestamp = ptr.To(metav1.NewTime(noon)) }
func orphaned(d *appsv1.Deployment) { d.OwnerReferences = nil }

// unavailable makes a Deployment one of which a replica is not available yet.
func unavailable(d *appsv1.Deployment) { d.Status.AvailableReplicas-- }

// stuck makes a Deployment one that its controller reports as stuck.
func stuck(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func scaled(n int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = &n }
}

// unconfined makes a Deployment that of a version that said nothing about what its pods may do.
func unconfined(d *appsv1.Deployment) {
	pod := &d.Spec.Template.Spec
	pod.AutomountServiceAccountToken, pod.SecurityContext, pod.Containers[0].SecurityContext = nil, nil, nil
}

// ofEarlierFoo makes a Deployment that of a Foo that had the same name.
func ofEarlierFoo(d *appsv1.Deployment) { d.OwnerReferences[0].UID = "foo-0" }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// asJSON returns value as JSON with indentation.
func asJSON(value any) string { return string(must(json.MarshalIndent(value, "", "  "))) }
