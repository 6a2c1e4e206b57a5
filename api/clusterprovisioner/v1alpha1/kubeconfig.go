package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kubeconfigs,scope=Cluster,categories=keelson
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.server`,description="The API that the kubeconfig leads to"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the kubeconfig is there and valid"
// +kubebuilder:printcolumn:name="Not-After",type=string,JSONPath=`.status.notAfter`,description="How long the client certificate is good"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Kubeconfig is ready, or is not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Kubeconfig says how to reach a cluster: where its kubeconfig is, and how long
// that is good. There is one for each Cluster, of the same name.
type Kubeconfig struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Where the kubeconfig is.
	// +optional
	Spec KubeconfigSpec `json:"spec,omitempty"`

	// What was last seen of it. Written by the controller only.
	// +optional
	Status KubeconfigStatus `json:"status,omitempty"`
}

// KubeconfigSpec says where a kubeconfig is: in a file, in a Secret, or in both.
type KubeconfigSpec struct {
	// Path of the kubeconfig on the file system of the manager.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	ConfigPath string `json:"configPath,omitempty"`

	// The same as configPath, as the original controller stored it. It is moved to
	// configPath when it is seen.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	LegacyConfigPath string `json:"ConfigPath,omitempty"`

	// The Secret with the kubeconfig; a copy, where there is a file, too.
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

// KubeconfigStatus is what was last seen of a kubeconfig.
type KubeconfigStatus struct {
	// URL of the API that the kubeconfig leads to.
	// +optional
	Server string `json:"server,omitempty"`

	// When the client certificate in it expires; none if it has no certificate.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// From when on the present client certificate is valid, which is shortly before
	// it was issued.
	// +optional
	LastRotated *metav1.Time `json:"lastRotated,omitempty"`

	// Generation of the Kubeconfig that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the Kubeconfig. Ready says that the kubeconfig is there,
	// can be read and has not expired.
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
