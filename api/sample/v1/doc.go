// Package v1 is the API of SampleResource, in the group example.com.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +groupName=example.com
// +groupGoName=Sample
package v1
