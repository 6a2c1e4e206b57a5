// Package v1alpha1 is the API of Foo, in the group samplecontroller.k8s.io.
//
// +k8s:deepcopy-gen=package
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=samplecontroller.k8s.io
package v1alpha1
