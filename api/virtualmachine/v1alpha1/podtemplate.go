package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// EvictionPolicy is what happens when the Pod of a machine is evicted.
// +kubebuilder:validation:Enum=stop;sleep;none
type EvictionPolicy string

// The policies.
const (
	// EvictionStop powers the guest off. The machine starts again in another Pod.
	EvictionStop EvictionPolicy = "stop"
	// EvictionSleep puts the machine to sleep. It wakes in another Pod.
	EvictionSleep EvictionPolicy = "sleep"
	// EvictionNone refuses evictions.
	EvictionNone EvictionPolicy = "none"
)

// PodTemplate is what the Pod of a machine has in addition, with the driver pod. The fields are
// those of a Pod.
type PodTemplate struct {
	// Labels and annotations of the Pod.
	// +optional
	Metadata PodMetadata `json:"metadata,omitzero"`

	// Scheduling of the Pod.
	// +optional
	Spec PodScheduling `json:"spec,omitzero"`
}

// PodMetadata are labels and annotations.
type PodMetadata struct {
	// Labels of the Pod. The keys of this group are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('cloudnative.tw/'))",message="keys of cloudnative.tw are reserved: remove them"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the Pod. The keys of this group are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('cloudnative.tw/'))",message="keys of cloudnative.tw are reserved: remove them"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PodScheduling determines the node of a Pod.
type PodScheduling struct {
	// Labels that a node must have for the Pod.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Preferred and required nodes, and other Pods to run beside or apart from.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Taints of nodes that the Pod tolerates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// How Pods spread over failure domains, such as zones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// Name of the PriorityClass of the Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
}
