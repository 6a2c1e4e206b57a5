package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// HostedControlPlane says where and how the control plane of the engine hosted runs.
// +kubebuilder:validation:XValidation:rule="self.?replicas.orValue(1) == oldSelf.?replicas.orValue(1)",message="spec.hosted.replicas cannot be changed: create another Cluster instead"
// +kubebuilder:validation:XValidation:rule="has(self.storage) == has(oldSelf.storage)",message="spec.hosted.storage cannot be changed: create another Cluster instead"
type HostedControlPlane struct {
	// Namespace of the Pods, Secrets and claims of the control plane. It must exist.
	// Who may read Secrets there is an administrator of the cluster. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another Cluster instead"
	Namespace string `json:"namespace"`

	// Number of members of etcd, and of API servers: 1, or 3 for high availability.
	// The default is 1. Immutable.
	// +optional
	// +kubebuilder:validation:Enum=1;3
	Replicas *int32 `json:"replicas,omitempty"`

	// Storage of each member of etcd. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: create another Cluster instead"
	Storage *HostedStorage `json:"storage,omitempty"`
}

// HostedStorage is the claim of a member of etcd.
type HostedStorage struct {
	// StorageClass of the claim. The default is that of the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// Size of the claim. The default is 2Gi.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
}
