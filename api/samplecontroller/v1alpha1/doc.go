// Package v1alpha1 is the API of Foo, in the group samplecontroller.k8s.io.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +groupName=samplecontroller.k8s.io
package v1alpha1
