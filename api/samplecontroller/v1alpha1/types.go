package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultImage is the container image of a Foo that does not name one.
const DefaultImage = "nginx:latest"

// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.availableReplicas,selectorpath=.status.selector
// +kubebuilder:resource:path=foos,scope=Namespaced,categories=keelson
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, the group of the upstream sample controller"
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`,description="The Deployment that this Foo keeps"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="How many replicas are wanted"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="How many replicas are available"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Deployment is what the Foo asks for and available"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Foo is ready, or is not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Foo keeps one Deployment of the name and size that it asks for. The
// Deployment comes back when it is deleted, returns to what the Foo says when it
// is changed by hand, and goes when the Foo goes.
type Foo struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The Deployment that is wanted.
	// +required
	Spec FooSpec `json:"spec"`

	// What was last seen of it. Written by the controller only.
	// +optional
	Status FooStatus `json:"status,omitempty"`
}

// FooSpec is the Deployment that a Foo asks for.
type FooSpec struct {
	// Name of the Deployment to keep, in the namespace of the Foo. When it is
	// changed, a Deployment of the new name is created before the old one is
	// deleted. A Deployment of that name that belongs to someone else is never
	// touched: the Foo then reports Ready=False, reason ErrResourceExists. At
	// most 242 characters: Kubernetes appends up to 11 to name the ReplicaSets.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=242
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a valid Deployment name: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
	DeploymentName string `json:"deploymentName"`

	// How many pods the Deployment runs, 0 or more. This is also what
	// `kubectl scale foo` changes.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// Container image that the pods run.
	// +optional
	// +default="nginx:latest"
	// +kubebuilder:default="nginx:latest"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == self.trim()",message="must not begin or end with white space"
	Image string `json:"image,omitempty"`
}

// FooStatus is what the controller last saw of the Deployment.
type FooStatus struct {
	// How many pods of the Deployment have been ready for long enough to count
	// as available.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// Label selector of the pods, in the text form that autoscalers read through
	// the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Generation of the Foo that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the Foo. Ready sums it up: the Deployment exists, is
	// what the spec says, and all its replicas are available.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// FooList is a list of Foos.
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The Foos.
	Items []Foo `json:"items"`
}
