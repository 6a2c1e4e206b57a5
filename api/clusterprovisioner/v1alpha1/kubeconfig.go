package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kubeconfigs,scope=Cluster,categories=keelson
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.server`,description="URL of the API in the kubeconfig"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the kubeconfig is there and valid"
// +kubebuilder:printcolumn:name="Not-After",type=string,JSONPath=`.status.notAfter`,description="How long the client certificate is good"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Kubeconfig is ready, or is not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Kubeconfig refers to the kubeconfig of a cluster and reports its server and expiry.
// Each Cluster has one with the same name.
type Kubeconfig struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Location of the kubeconfig.
	// +optional
	Spec KubeconfigSpec `json:"spec,omitempty"`

	// The observed state. Only the controller writes it.
	// +optional
	Status KubeconfigStatus `json:"status,omitempty"`
}

// KubeconfigSpec is the location of a kubeconfig: a file, a Secret, or both.
type KubeconfigSpec struct {
	// Path of the kubeconfig on the host of the manager.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ConfigPath string `json:"configPath,omitempty"`

	// Deprecated name of configPath, from the original controller. Its value is moved
	// to configPath.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	LegacyConfigPath string `json:"ConfigPath,omitempty"`

	// Secret with the kubeconfig. If there is also a file, the Secret is a copy.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// SecretReference names a Secret and the key of the kubeconfig in it.
type SecretReference struct {
	// Namespace of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the kubeconfig in the Secret.
	// +optional
	// +default="value"
	// +kubebuilder:default="value"
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// KubeconfigStatus is the observed state of a kubeconfig.
type KubeconfigStatus struct {
	// URL of the API server in the kubeconfig.
	// +optional
	Server string `json:"server,omitempty"`

	// Expiry of the client certificate; unset if the kubeconfig has none.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// Start of the validity of the client certificate, shortly before it was issued.
	// +optional
	LastRotated *metav1.Time `json:"lastRotated,omitempty"`

	// Generation of the Kubeconfig that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the Kubeconfig. Ready is True if the kubeconfig exists, is valid
	// and has not expired.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// KubeconfigList is a list of Kubeconfigs.
type KubeconfigList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The Kubeconfigs.
	Items []Kubeconfig `json:"items"`
}
