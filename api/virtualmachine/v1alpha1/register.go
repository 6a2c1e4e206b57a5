package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of VirtualMachine.
const GroupName = "cloudnative.tw"

var (
	// SchemeGroupVersion is the group and version of the types in this package.
	SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add these types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource qualifies the name of a resource with the group of this package.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &VirtualMachine{}, &VirtualMachineList{}, &VirtualMachineImage{}, &VirtualMachineImageList{},
		&VirtualDisk{}, &VirtualDiskList{}, &VirtualMachineSnapshot{}, &VirtualMachineSnapshotList{}, &VirtualMachineSet{}, &VirtualMachineSetList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
