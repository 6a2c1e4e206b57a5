// Package v1 is the API of CronTab, in the group stable.example.com.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +groupName=stable.example.com
// +groupGoName=Stable
package v1
