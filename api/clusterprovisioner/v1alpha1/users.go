package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LabelUser is a label of the Secret with the kubeconfig of a user of spec.users: the name of the user.
const LabelUser = GroupName + "/user"

// ClusterUser is a user of a cluster with a kubeconfig of its own.
// +kubebuilder:validation:XValidation:rule="!has(self.ttl) || (duration(self.ttl) >= duration('1h') && duration(self.ttl) <= duration('87600h'))",message="spec.users.ttl must be from 1h to 87600h"
type ClusterUser struct {
	// Name of the user in the API of the cluster. It is part of the name of the
	// Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Groups of the user in the API of the cluster. Groups of Kubernetes itself, such
	// as system:masters, are rejected. Grant permissions to users and groups in the
	// cluster.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9:._@/-]*$`
	// +kubebuilder:validation:items:XValidation:rule="!self.startsWith('system:')",message="groups that begin with system: belong to Kubernetes"
	Groups []string `json:"groups,omitempty"`

	// How long a kubeconfig of the user is valid, such as 24h. It is replaced when half
	// of that time is over. The default is 8760h, a year.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(s|m|h))+$`
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// Time of a request to rotate the credentials of the user, usually the current time.
	// Each new value gives the user new credentials and revokes all earlier ones at once.
	// So does a change of groups or ttl.
	// +optional
	RotateRequestedAt *metav1.Time `json:"rotateRequestedAt,omitempty"`
}

// ClusterUserStatus is the observed state of a user.
type ClusterUserStatus struct {
	// Name of the user.
	// +required
	Name string `json:"name"`

	// The Secret with the kubeconfig of the user.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Time at which the current kubeconfig expires.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// Last value of rotateRequestedAt of the user in the spec.
	// +optional
	LastRotateRequestedAt *metav1.Time `json:"lastRotateRequestedAt,omitempty"`
}
