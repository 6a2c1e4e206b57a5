package v1alpha1

// ClusterNodes has the numbers of nodes of a local cluster. A node that is not mentioned does not exist.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.simulated) || !has(self.real) || self.simulated == 0 || self.real == 0",message="nodes are either simulated or real: a Pod that is scheduled to a simulated node would only report that it runs"
type ClusterNodes struct {
	// Number of simulated nodes. Pods on them report that they run, but nothing is
	// executed. The default is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Simulated *int32 `json:"simulated,omitempty"`

	// Number of real nodes on the host of the manager, which run Pods. They share the
	// CPUs and the memory of the host equally. A change restarts the containers of
	// all of them. The default is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32
	Real *int32 `json:"real,omitempty"`
}
