package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultImage is the default container image of a Foo.
const DefaultImage = "nginx:latest"

// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=foos,scope=Namespaced,categories=keelson
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, the group of the upstream sample controller"
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`,description="Name of the Deployment"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Desired number of replicas"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="Number of available replicas"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Deployment is up to date and available"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Foo keeps one Deployment with the name and size of its spec. The controller
// recreates the Deployment if it was deleted, reverts manual changes, and deletes it
// with the Foo.
type Foo struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired Deployment.
	// +required
	Spec FooSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status FooStatus `json:"status,omitempty"`
}

// FooSpec is the desired Deployment of a Foo.
type FooSpec struct {
	// Name of the Deployment, in the namespace of the Foo. After a change, the
	// Deployment with the new name is created before the old one is deleted. A
	// Deployment with another owner is never changed: the Foo then has Ready=False
	// with the reason ErrResourceExists. At most 242 characters, because Kubernetes
	// appends up to 11 for the names of ReplicaSets.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=242
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a valid Deployment name: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
	DeploymentName string `json:"deploymentName"`

	// Number of Pods, 0 or more. `kubectl scale foo` changes this field.
	// +optional
	// +default=1
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// Container image of the Pods.
	// +optional
	// +default="nginx:latest"
	// +kubebuilder:default="nginx:latest"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == self.trim()",message="must not begin or end with white space"
	Image string `json:"image,omitempty"`
}

// FooStatus is the observed state of the Deployment.
type FooStatus struct {
	// Number of Pods of the Deployment, for the scale subresource.
	// +optional
	Replicas int32 `json:"replicas"`

	// Number of available Pods of the Deployment.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// Label selector of the Pods as text, for autoscalers, which read it from the
	// scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Generation of the Foo that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the Foo. Ready is True if the Deployment exists, is up to date, and
	// all its replicas are available.
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
