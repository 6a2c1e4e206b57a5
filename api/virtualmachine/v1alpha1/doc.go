// Package v1alpha1 is the API of VirtualMachine, in the group cloudnative.tw.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +groupName=cloudnative.tw
// +groupGoName=Cloudnative
package v1alpha1
