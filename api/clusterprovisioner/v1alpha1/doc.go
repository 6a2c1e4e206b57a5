// Package v1alpha1 is the API of Cluster, ClusterSnapshot and Kubeconfig, in the group
// clusterprovisioner.rke.io.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +groupName=clusterprovisioner.rke.io
package v1alpha1
