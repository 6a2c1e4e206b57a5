// Package v1 is the API of SampleResource, in the group example.com.
//
// +k8s:deepcopy-gen=package
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=example.com
package v1
