package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=sampleresources,scope=Namespaced,categories=keelson
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.podImage`,description="The image that is wanted"
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.status.podName`,description="The Pod that runs it"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Pod runs the image and is ready"
// +kubebuilder:printcolumn:name="Replacements",type=integer,JSONPath=`.status.replacements`,description="How often a failed or lost Pod was replaced"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the SampleResource is ready, or is not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// SampleResource keeps one Pod running an image. The Pod is replaced when it is
// gone, has failed, or its node is lost; when the image is changed, the same Pod
// runs the new one.
type SampleResource struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The Pod that is wanted.
	// +required
	Spec SampleResourceSpec `json:"spec"`

	// What was last seen of it. Written by the controller only.
	// +optional
	Status SampleResourceStatus `json:"status,omitempty"`
}

// SampleResourceSpec is the Pod that a SampleResource asks for.
type SampleResourceSpec struct {
	// Container image that the Pod runs. A change is made in place: the Pod
	// stays, its container is restarted with the new image.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == self.trim()",message="must not begin or end with white space"
	PodImage string `json:"podImage"`
}

// SampleResourceStatus is what the controller last saw of the Pod.
type SampleResourceStatus struct {
	// Name of the Pod, in the namespace of the SampleResource.
	// +optional
	PodName string `json:"podName,omitempty"`

	// How often a Pod failed or was lost with its node, so that it was, or is about
	// to be, replaced. A Pod that somebody deleted does not count.
	// +optional
	Replacements int32 `json:"replacements"`

	// How many Pods in a row failed before one became ready. It sets the pause
	// before the next attempt: 10 s, doubled each time, 300 s at most.
	// +optional
	ConsecutiveFailures int32 `json:"consecutiveFailures,omitempty"`

	// When the newest failure was seen. The next attempt waits from here.
	// +optional
	LastFailureTime *metav1.Time `json:"lastFailureTime,omitempty"`

	// UID of the Pod whose failure was counted last, so that none counts twice.
	// +optional
	LastFailedPodUID types.UID `json:"lastFailedPodUID,omitempty"`

	// Generation of the SampleResource that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the SampleResource. Ready sums it up: the Pod runs the
	// image that the spec names, and is ready.
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
