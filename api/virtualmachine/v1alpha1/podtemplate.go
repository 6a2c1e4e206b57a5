package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// VirtualMachinePod is the Pod of a machine and its volumes.
type VirtualMachinePod struct {
	// Additional fields of the Pod. A change requires a restart.
	// +optional
	Template *PodTemplate `json:"template,omitempty"`

	// What happens when somebody else evicts or deletes the Pod, such as a drain of its
	// node. With Stop, the default, the guest is powered off, and the machine starts in
	// another Pod; with Sleep, it is put to sleep, and wakes there. With None, evictions are
	// refused, so that a drain waits. A change to or from Sleep applies at the next start.
	// +optional
	EvictionPolicy EvictionPolicy `json:"evictionPolicy,omitempty"`

	// StorageClass of the PersistentVolumeClaims of the disks. The default is that of the
	// cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the disk is in a volume of this class. Create another VirtualMachine"
	StorageClassName string `json:"storageClassName,omitempty"`

	// Where the disks are: Persistent, the default, in PersistentVolumeClaims; Ephemeral, on
	// the storage of the node, new at each start. A machine with ephemeral disks cannot sleep.
	// +optional
	Storage PodStorage `json:"storage,omitempty"`
}

// EvictionPolicy is what happens when the Pod of a machine is evicted.
// +kubebuilder:validation:Enum=Stop;Sleep;None
type EvictionPolicy string

// The policies.
const (
	// EvictionStop powers the guest off. The machine starts again in another Pod.
	EvictionStop EvictionPolicy = "Stop"
	// EvictionSleep puts the machine to sleep. It wakes in another Pod.
	EvictionSleep EvictionPolicy = "Sleep"
	// EvictionNone refuses evictions.
	EvictionNone EvictionPolicy = "None"
)

// PodStorage is where the disks of a machine in a Pod are.
// +kubebuilder:validation:Enum=Persistent;Ephemeral
type PodStorage string

// The values of PodStorage.
const (
	// StoragePersistent keeps the disks in PersistentVolumeClaims.
	StoragePersistent PodStorage = "Persistent"
	// StorageEphemeral gives the machine new disks at each start, on the storage of its node.
	StorageEphemeral PodStorage = "Ephemeral"
)

// PodTemplate has additional fields of the Pod of a machine, with the driver pod. They are
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
