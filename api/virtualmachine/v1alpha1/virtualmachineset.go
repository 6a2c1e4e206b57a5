package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// LabelSet is the label of the VirtualMachines and VirtualDisks of a VirtualMachineSet: its name.
	LabelSet = GroupName + "/virtualmachineset"
	// LabelTemplateHash is the label of a VirtualMachine of a VirtualMachineSet: the hash of the template that it has.
	LabelTemplateHash = GroupName + "/template-hash"
	// AnnotationStartedTemplateHash is an annotation of such a VirtualMachine: the hash of the template for which it was created or
	// restarted. A VirtualMachineSet restarts a machine at most once for each template.
	AnnotationStartedTemplateHash = GroupName + "/started-template-hash"
)

// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=virtualmachinesets,scope=Namespaced,shortName=vmset;vmsets,categories=keelson
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Desired number of machines"
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`,description="Number of machines with the current template"
// +kubebuilder:printcolumn:name="Ready Replicas",type=integer,JSONPath=`.status.readyReplicas`,description="Number of machines that are ready"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether all machines have the current template and are ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 58",message="metadata.name: at most 58 characters, because the names of the machines append a number"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec) || !has(self.spec.template.spec.service) || self.metadata.name.matches('^[a-z][-a-z0-9]*$')",message="a Service has the name of a machine: with service, the name of the set must be a DNS label that begins with a letter",fieldPath=".spec.template.spec.service"

// VirtualMachineSet runs VirtualMachines that are created from one template. Their names are that of
// the set with a number from 0, and stay when a machine is replaced. A change of the template
// reaches one machine after the other.
type VirtualMachineSet struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired machines.
	// +required
	Spec VirtualMachineSetSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status VirtualMachineSetStatus `json:"status,omitempty"`
}

// VirtualMachineSetSpec is the desired machines.
// +kubebuilder:validation:XValidation:rule="has(self.virtualDiskTemplates) == has(oldSelf.virtualDiskTemplates)",message="cannot be set or removed later: machines have these disks. Create another VirtualMachineSet",fieldPath=".virtualDiskTemplates"
// +kubebuilder:validation:XValidation:rule="!has(self.virtualDiskTemplates) || !has(self.template.spec) || !has(self.template.spec.disks) || self.template.spec.disks.all(disk, !self.virtualDiskTemplates.exists(own, own.name == disk.name))",message="a disk of virtualDiskTemplates has this name",fieldPath=".template.spec.disks"
type VirtualMachineSetSpec struct {
	// Number of machines. kubectl scale and the HorizontalPodAutoscaler change this field.
	// Machines with the highest numbers are deleted first.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// Template of the machines. After a change, each machine gets the new spec in place, and
	// is restarted if the change requires it. A machine is deleted and created again, with
	// new disks, if a field changes that a VirtualMachine cannot change, such as image.
	// +required
	Template VirtualMachineTemplate `json:"template"`

	// VirtualDisks of each machine, besides the disks of the template. They are
	// kept when a machine is replaced, when the set is scaled down, and when it is deleted.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: machines have these disks. Create another VirtualMachineSet, or change the VirtualDisks"
	VirtualDiskTemplates []VirtualDiskTemplate `json:"virtualDiskTemplates,omitempty"`

	// How a change of the template reaches the machines.
	// +optional
	// +kubebuilder:default={}
	UpdateStrategy UpdateStrategy `json:"updateStrategy,omitzero"`
}

// VirtualMachineTemplate is what the machines of a set have in common.
type VirtualMachineTemplate struct {
	// Labels and annotations of the machines.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// Spec of the machines.
	// +optional
	// +kubebuilder:default={}
	Spec VirtualMachineSpec `json:"spec,omitempty"`
}

// TemplateMetadata are labels and annotations of machines.
type TemplateMetadata struct {
	// Labels of the machines. The keys of this group are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('cloudnative.tw/'))",message="keys of cloudnative.tw are reserved: remove them"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the machines. The keys of this group are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('cloudnative.tw/'))",message="keys of cloudnative.tw are reserved: remove them"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// VirtualDiskTemplate is a VirtualDisk that each machine of a set has. Its name is NAME-MACHINE,
// such as data-web-0.
type VirtualDiskTemplate struct {
	// Name of the disk in the machine, see spec.disks of a VirtualMachine.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="!(self in ['root', 'seed', 'cdrom'])",message="the names root, seed and cdrom are reserved"
	Name string `json:"name"`

	// Spec of the VirtualDisk.
	// +required
	Spec VirtualDiskSpec `json:"spec"`
}

// UpdateStrategy is how a change of the template reaches the machines.
type UpdateStrategy struct {
	// One machine after the other, the highest number first.
	// +optional
	// +kubebuilder:default={}
	RollingUpdate RollingUpdate `json:"rollingUpdate,omitzero"`
}

// RollingUpdate limits how many machines are updated at once.
type RollingUpdate struct {
	// Number of machines that may be unavailable during an update, or a percentage of
	// replicas such as 25%, which is rounded down, but to at least 1. The next machine is
	// updated when fewer are unavailable.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be at least 1, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// VirtualMachineSetStatus is the observed state of the machines.
type VirtualMachineSetStatus struct {
	// Number of machines, without those that are being deleted.
	// +optional
	Replicas int32 `json:"replicas"`

	// Number of machines that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// Number of machines that have the current template and need no restart for it.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// Label selector of the machines as text, for autoscalers, which read it from the scale
	// subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Generation of the VirtualMachineSet that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the set. Ready is True if all machines have the current template and are
	// ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// VirtualMachineSetList is a list of VirtualMachineSets.
type VirtualMachineSetList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The VirtualMachineSets.
	Items []VirtualMachineSet `json:"items"`
}
