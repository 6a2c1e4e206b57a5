package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualmachines,scope=Namespaced,shortName=vm;vms,categories=keelson
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.printableStatus`,description="Creating, Booting, Running, Paused, Asleep, Stopping, Stopped, Failed, Terminating or Unknown"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the machine is as requested"
// +kubebuilder:printcolumn:name="CPU(%)",type=integer,JSONPath=`.status.server.usage.cpu`,description="Processor usage in percent of all processors of the machine"
// +kubebuilder:printcolumn:name="Memory(%)",type=integer,JSONPath=`.status.server.usage.memory`,description="Memory usage in percent"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Driver",type=string,priority=1,JSONPath=`.status.host.driver`,description="Backend that has the server"
// +kubebuilder:printcolumn:name="Host",type=string,priority=1,JSONPath=`.status.host.name`,description="Host that has the server"
// +kubebuilder:printcolumn:name="Address",type=string,priority=1,JSONPath=`.status.server.addresses[0]`,description="First address of the guest"
// +kubebuilder:printcolumn:name="Restarts",type=integer,priority=1,JSONPath=`.status.restarts`,description="Number of restarts after the guest stopped by itself"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.service) || self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')",message="a Service has the name of the machine: with service, it must be a DNS label that begins with a letter",fieldPath=".spec.service"

// VirtualMachine is a virtual machine in a private cloud. A backend, called driver, runs
// it: QEMU on the host of the manager, Docker, or another.
type VirtualMachine struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired machine.
	// +optional
	// +kubebuilder:default={}
	Spec VirtualMachineSpec `json:"spec,omitempty"`

	// The observed state. Only the controller writes it.
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
