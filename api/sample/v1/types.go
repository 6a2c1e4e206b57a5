package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sampleresources,scope=Namespaced,categories=keelson
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.podImage`,description="Image of the Pod"
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.podName`,description="Name of the Pod"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Pod runs the image and is ready"
// +kubebuilder:printcolumn:name="Replacements",type=integer,JSONPath=`.status.replacements`,description="Number of replacements of failed or lost Pods"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// SampleResource keeps one Pod with an image running. The controller replaces the
// Pod if it was deleted, has failed, or its node is lost. A change of the image is
// applied to the same Pod.
type SampleResource struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired Pod.
	// +required
	Spec SampleResourceSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status SampleResourceStatus `json:"status,omitempty"`
}

// SampleResourceSpec is the desired Pod of a SampleResource.
type SampleResourceSpec struct {
	// Container image of the Pod. A change is applied in place: the container of the
	// same Pod is restarted with the new image.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == self.trim()",message="must not begin or end with white space"
	PodImage string `json:"podImage"`
}

// SampleResourceStatus is the observed state of the Pod.
type SampleResourceStatus struct {
	// Name of the Pod, in the namespace of the SampleResource.
	// +optional
	PodName string `json:"podName,omitempty"`

	// Number of Pods that failed or were lost with their node, and were or will be
	// replaced. Pods that were deleted do not count.
	// +optional
	Replacements int32 `json:"replacements"`

	// Number of consecutive failures. It determines the backoff: 10 s, doubled with
	// each failure, at most 300 s.
	// +optional
	ConsecutiveFailures int32 `json:"consecutiveFailures,omitempty"`

	// Time of the last failure, from which the backoff counts.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// UID of the last failed Pod, so that a failure is counted once.
	// +optional
	LastFailedPodUID types.UID `json:"lastFailedPodUID,omitempty"`

	// Generation of the SampleResource that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the SampleResource. Ready is True if the Pod runs the image of the
	// spec and is ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// SampleResourceList is a list of SampleResources.
type SampleResourceList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The SampleResources.
	Items []SampleResource `json:"items"`
}
