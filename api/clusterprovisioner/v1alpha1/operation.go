package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OperationType is the type of an operation.
// +enum
type OperationType string

const (
	// OperationProvision creates the cluster.
	OperationProvision OperationType = "Provision"
	// OperationUpdate applies a changed spec or configuration.
	OperationUpdate OperationType = "Update"
	// OperationUpgrade changes the Kubernetes version.
	OperationUpgrade OperationType = "Upgrade"
	// OperationRotate rotates the credentials.
	OperationRotate OperationType = "RotateCredentials"
	// OperationStart starts a stopped cluster.
	OperationStart OperationType = "Start"
	// OperationStop stops a cluster and keeps its data.
	OperationStop OperationType = "Stop"
	// OperationRestore replaces the objects of the cluster with those of a snapshot.
	OperationRestore OperationType = "Restore"
	// OperationDelete removes the cluster.
	OperationDelete OperationType = "Delete"
)

// OperationState is the state of an operation.
// +enum
type OperationState string

const (
	// OperationProcessing means that the operation is in progress.
	OperationProcessing OperationState = "Processing"
	// OperationSucceeded means that the operation succeeded.
	OperationSucceeded OperationState = "Succeeded"
	// OperationFailed means that the operation failed; it is retried with backoff.
	OperationFailed OperationState = "Failed"
)

// LastOperation is the current or the last operation.
type LastOperation struct {
	// Type of the operation: Provision, Update, Upgrade, RotateCredentials, Start, Stop,
	// Restore or Delete.
	// +required
	Type OperationType `json:"type"`

	// State of the operation: Processing, Succeeded or Failed.
	// +required
	State OperationState `json:"state"`

	// Current step, or cause of the failure.
	// +optional
	Description string `json:"description,omitempty"`

	// Number of attempts. The backoff grows with it.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// Time of the last change of state or description.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`
}
