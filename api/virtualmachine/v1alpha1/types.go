package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualmachines,scope=Namespaced,shortName=vm;vms,categories=keelson
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`,description="Creating, Active, Failed, Terminating or Unknown"
// +kubebuilder:printcolumn:name="CPU",type=integer,JSONPath=`.status.server.usage.cpu`,description="Use of the processors in percent"
// +kubebuilder:printcolumn:name="Memory",type=integer,JSONPath=`.status.server.usage.memory`,description="Use of the memory in percent"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="State",type=string,priority=1,JSONPath=`.status.server.state`,description="Power state of the server"
// +kubebuilder:printcolumn:name="Driver",type=string,priority=1,JSONPath=`.status.server.driver`,description="Backend that has the server"
// +kubebuilder:printcolumn:name="Host",type=string,priority=1,JSONPath=`.status.host.name`,description="Host that has the server"
// +kubebuilder:printcolumn:name="Addresses",type=string,priority=1,JSONPath=`.status.server.addresses`,description="Addresses of the guest"
// +kubebuilder:printcolumn:name="Restarts",type=integer,priority=1,JSONPath=`.status.restarts`,description="How often the machine was started again after it had stopped by itself"
// +kubebuilder:printcolumn:name="Ready",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the guest has answered"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the VirtualMachine is ready, or is not"

// VirtualMachine is a virtual machine in a private cloud. A backend, called driver,
// makes it real: QEMU on the manager's host, Docker, or another.
type VirtualMachine struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The machine that is wanted.
	// +optional
	// +kubebuilder:default={}
	Spec VirtualMachineSpec `json:"spec,omitempty"`

	// What was last seen of it. Written by the controller only.
	// +optional
	Status VirtualMachineStatus `json:"status,omitempty"`
}

// +kubebuilder:object:root=true

// VirtualMachineList is a list of VirtualMachines.
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The VirtualMachines.
	Items []VirtualMachine `json:"items"`
}
