package foo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/names"
)

const (
	// containerName is the container that runs spec.image.
	containerName = "foo"

	// labelFooUID selects the Pods of a Foo.
	labelFooUID = v1alpha1.GroupName + "/foo-uid"

	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// newDeployment returns the Deployment of foo with exactly the fields that this controller owns.
func newDeployment(foo *v1alpha1.Foo) *appsv1ac.DeploymentApplyConfiguration {
	return appsv1ac.Deployment(foo.Spec.DeploymentName, foo.Namespace).
		WithLabels(newLabels(foo)).
		WithOwnerReferences(metav1ac.OwnerReference().
			WithAPIVersion(kind.GroupVersion().String()).
			WithKind(kind.Kind).
			WithName(foo.Name).
			WithUID(foo.UID).
			WithController(true).
			WithBlockOwnerDeletion(true)).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(replicas(foo)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(newSelector(foo))).
			WithTemplate(corev1ac.PodTemplateSpec().
				WithLabels(newLabels(foo)).
				WithSpec(corev1ac.PodSpec().
					// The image is not trusted and gets no credentials of the namespace.
					WithAutomountServiceAccountToken(false).
					WithSecurityContext(corev1ac.PodSecurityContext().
						WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
					WithContainers(corev1ac.Container().
						WithName(containerName).
						WithImage(image(foo)).
						WithSecurityContext(corev1ac.SecurityContext().WithAllowPrivilegeEscalation(false))))))
}

// asObject converts an apply configuration to a Deployment for a create.
func asObject(deployment *appsv1ac.DeploymentApplyConfiguration) (*appsv1.Deployment, error) {
	raw, err := json.Marshal(deployment)
	if err != nil {
		return nil, err
	}
	object := &appsv1.Deployment{}
	return object, json.Unmarshal(raw, object)
}

// newSelector returns the labels that select the Pods of foo. It uses the UID because a
// name can be too long for a label, and because an earlier Foo may have had the same
// name. It does not change when the Deployment is renamed.
func newSelector(foo *v1alpha1.Foo) map[string]string {
	return map[string]string{labelFooUID: string(foo.UID)}
}

// newLabels returns the labels of the Deployment and of its Pods.
func newLabels(foo *v1alpha1.Foo) map[string]string {
	all := newSelector(foo)
	all[labelName] = "foo"
	all[labelInstance] = names.Shorten(foo.Name, validation.LabelValueMaxLength)
	all[labelManagedBy] = kube.FieldManager
	return all
}

// replicas returns spec.replicas or its default. The API server sets the default, but a Foo
// that was stored before the field had one lacks it.
func replicas(foo *v1alpha1.Foo) int32 { return ptr.Deref(foo.Spec.Replicas, 1) }

// image returns spec.image or its default, see replicas.
func image(foo *v1alpha1.Foo) string {
	return cmp.Or(foo.Spec.Image, v1alpha1.DefaultImage)
}

// differences describes what an apply of newDeployment would change in the Deployment, for
// an event. It returns none if nothing would change.
func differences(foo *v1alpha1.Foo, deployment *appsv1.Deployment) []string {
	var found []string
	if got, want := ptr.Deref(deployment.Spec.Replicas, 1), replicas(foo); got != want {
		found = append(found, fmt.Sprintf("replicas %d instead of %d", got, want))
	}
	pod := &deployment.Spec.Template.Spec
	if container := containerOf(pod); container == nil {
		found = append(found, fmt.Sprintf("no container %q", containerName))
	} else {
		if container.Image != image(foo) {
			found = append(found, fmt.Sprintf("image %q instead of %q", container.Image, image(foo)))
		}
		if !isConfined(pod, container) {
			found = append(found, "another security context")
		}
	}
	if ptr.Deref(pod.AutomountServiceAccountToken, true) {
		found = append(found, "a service account token for its pods")
	}
	if want := newLabels(foo); !contains(deployment.Labels, want) || !contains(deployment.Spec.Template.Labels, want) {
		found = append(found, "other labels")
	}
	if !hasOwnerReference(foo, deployment) {
		found = append(found, "another owner reference")
	}
	return found
}

// containerOf returns the container that newDeployment defines, or nil.
func containerOf(pod *corev1.PodSpec) *corev1.Container {
	for i := range pod.Containers {
		if container := &pod.Containers[i]; container.Name == containerName {
			return container
		}
	}
	return nil
}

// isConfined reports whether the Pod and its container have the security context of newDeployment.
func isConfined(pod *corev1.PodSpec, container *corev1.Container) bool {
	return pod.SecurityContext != nil && pod.SecurityContext.SeccompProfile != nil &&
		pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault &&
		container.SecurityContext != nil && !ptr.Deref(container.SecurityContext.AllowPrivilegeEscalation, true)
}

// contains reports whether all contains every entry of part.
func contains(all, part map[string]string) bool {
	for key, value := range part {
		if got, found := all[key]; !found || got != value {
			return false
		}
	}
	return true
}

func hasOwnerReference(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.UID == foo.UID && ref.Name == foo.Name && ref.Kind == kind.Kind &&
			ref.APIVersion == kind.GroupVersion().String() &&
			ptr.Deref(ref.Controller, false) && ptr.Deref(ref.BlockOwnerDeletion, false)
	})
}

// hasSelector reports whether the Deployment has the selector of newDeployment. The field
// is immutable.
func hasSelector(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	selector := deployment.Spec.Selector
	return selector != nil && len(selector.MatchExpressions) == 0 &&
		maps.Equal(selector.MatchLabels, newSelector(foo))
}

// selectorText returns the Pod selector in the format of the scale subresource.
func selectorText(foo *v1alpha1.Foo) string {
	return labels.SelectorFromSet(newSelector(foo)).String()
}
