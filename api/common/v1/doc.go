// Package v1 has the types that several kinds have in common. It has no kinds itself.
//
// +kubebuilder:object:generate=true
// +k8s:openapi-gen=true
// +groupName=common.keelson.dev
// +groupGoName=Common
package v1

import "k8s.io/apimachinery/pkg/runtime/schema"

// SchemeGroupVersion is what the apply configurations call the package.
var SchemeGroupVersion = schema.GroupVersion{Group: "common.keelson.dev", Version: "v1"}
