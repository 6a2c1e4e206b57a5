package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SnapshotFinalizer is the finalizer of a ClusterSnapshot. It remains as long as the snapshot may have files.
const SnapshotFinalizer = GroupName + "/snapshot"

const (
	// StoreFinalizer is the finalizer of a ClusterSnapshot that may have a copy in the store of the
	// manager, or is read from there.
	StoreFinalizer = GroupName + "/snapshot-store"
	// AnnotationKeepCopy is an annotation of a ClusterSnapshot. With the value true, its deletion
	// leaves its copy in the store, and does not wait for the store.
	AnnotationKeepCopy = GroupName + "/keep-copy"
)

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clustersnapshots,scope=Cluster,categories=keelson
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="Cluster whose objects the snapshot has"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the snapshot is taken"
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`,description="Size of the snapshot on the host"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,description="Kubernetes version of the cluster when the snapshot was taken"
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.takenAt`,description="When the snapshot was taken"
// +kubebuilder:printcolumn:name="Stored",type=string,JSONPath=`.status.conditions[?(@.type=="Stored")].status`,description="Whether the store of the manager has a copy"
// +kubebuilder:printcolumn:name="Revision",type=integer,priority=1,JSONPath=`.status.revision`,description="Revision of etcd"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Reason of the condition Ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ClusterSnapshot is a copy of all objects of a local Cluster at one moment. It is taken
// once, while the cluster runs, and kept when the Cluster is deleted. A new Cluster is
// created from it with spec.from.
type ClusterSnapshot struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The snapshot to take.
	// +required
	Spec ClusterSnapshotSpec `json:"spec"`

	// The observed state. Only the controller writes it.
	// +optional
	Status ClusterSnapshotStatus `json:"status,omitempty"`
}

// ClusterSnapshotSpec is the snapshot to take.
// +kubebuilder:validation:XValidation:rule="has(self.stored) == has(oldSelf.stored) && (!has(self.stored) || self.stored == oldSelf.stored)",message="stored cannot be changed: create another ClusterSnapshot"
type ClusterSnapshotSpec struct {
	// Name of the Cluster, which must have the engine local or hosted. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: a snapshot is taken once. Create another ClusterSnapshot"
	ClusterName string `json:"clusterName"`

	// Copy in the store of the manager from which the snapshot is read, instead of taking
	// it: the name of its directory in the directory of the Cluster, which is the last
	// part of status.location. The copy is kept when the ClusterSnapshot is deleted.
	// Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Stored string `json:"stored,omitempty"`
}

// ClusterSnapshotStatus is the observed state of a snapshot.
type ClusterSnapshotStatus struct {
	// When the snapshot was taken.
	// +optional
	TakenAt *metav1.Time `json:"takenAt,omitempty"`

	// Size of the snapshot on the host in bytes.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// Revision of etcd: the snapshot has all writes up to it.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// Kubernetes version of the cluster when the snapshot was taken.
	// +optional
	Version string `json:"version,omitempty"`

	// Where the copy in the store of the manager is.
	// +optional
	Location string `json:"location,omitempty"`

	// Generation of the ClusterSnapshot that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the snapshot. Ready is True if it is taken. Stored is True if the
	// store of the manager has a copy; it exists only if the manager has a store.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// +kubebuilder:object:root=true

// ClusterSnapshotList is a list of ClusterSnapshots.
type ClusterSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The ClusterSnapshots.
	Items []ClusterSnapshot `json:"items"`
}
