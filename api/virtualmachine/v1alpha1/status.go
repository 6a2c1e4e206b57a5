package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

// Phase is the phase of a VirtualMachine.
type Phase string

// The values of Phase. It is empty before the first reconcile.
const (
	// PhaseCreating: there is no confirmed server yet.
	PhaseCreating Phase = "Creating"
	// PhaseActive: the server exists, in any power state.
	PhaseActive Phase = "Active"
	// PhaseFailed: the last attempt failed.
	PhaseFailed Phase = "Failed"
	// PhaseTerminating: the object is being deleted.
	PhaseTerminating Phase = "Terminating"
	// PhaseUnknown: the backend or the monitor of the machine does not respond, the server is
	// on another host, or its driver is not certain.
	PhaseUnknown Phase = "Unknown"
)

// PrintableStatus summarizes the state of a machine in one word, for the STATUS column of kubectl.
type PrintableStatus string

// The values of PrintableStatus. It is empty before the first reconcile.
const (
	// StatusCreating: there is no confirmed server yet.
	StatusCreating PrintableStatus = "Creating"
	// StatusBooting: the machine is being started, or its guest agent has not responded yet.
	StatusBooting PrintableStatus = "Booting"
	// StatusUnschedulable: no node can take the machine.
	StatusUnschedulable PrintableStatus = "Unschedulable"
	// StatusRunning: the machine is running.
	StatusRunning PrintableStatus = "Running"
	// StatusPaused: the machine is in memory and its processors are halted, or are about to be.
	StatusPaused PrintableStatus = "Paused"
	// StatusAsleep: the memory of the machine is in a file, and it uses none.
	StatusAsleep PrintableStatus = "Asleep"
	// StatusStopping: the machine is being stopped, restarted, restored or put to sleep.
	StatusStopping PrintableStatus = "Stopping"
	// StatusStopped: the machine is powered off.
	StatusStopped PrintableStatus = "Stopped"
	// StatusFailed: the last attempt failed.
	StatusFailed PrintableStatus = "Failed"
	// StatusTerminating: the object is being deleted.
	StatusTerminating PrintableStatus = "Terminating"
	// StatusUnknown: see PhaseUnknown.
	StatusUnknown PrintableStatus = "Unknown"
)

// ServerState is the power state of a server.
type ServerState string

// The values of ServerState.
const (
	// ServerRunning: the machine is running.
	ServerRunning ServerState = "Running"
	// ServerPaused: the machine is in memory and its processors are halted.
	ServerPaused ServerState = "Paused"
	// ServerAsleep: the memory of the machine is in a file, and it uses none.
	ServerAsleep ServerState = "Asleep"
	// ServerStopped: the machine is powered off.
	ServerStopped ServerState = "Stopped"
	// ServerStarting: the machine is being started.
	ServerStarting ServerState = "Starting"
	// ServerStopping: the machine is being stopped.
	ServerStopping ServerState = "Stopping"
	// ServerUnknown: the backend does not report the state.
	ServerUnknown ServerState = "Unknown"
)

// VirtualMachineStatus is the observed state of the machine.
type VirtualMachineStatus struct {
	// Phase of the machine: Creating, Active, Failed, Terminating or Unknown.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// State of the machine in one word: Creating, Booting, Unschedulable, Running, Paused,
	// Asleep, Stopping, Stopped, Failed, Terminating or Unknown.
	// +optional
	PrintableStatus PrintableStatus `json:"printableStatus,omitempty"`

	// Why the machine is not ready; empty if it is.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Host of the server. It is written before the server is created and does not change,
	// so that no other host creates a second server.
	// +optional
	Host *Host `json:"host,omitempty"`

	// Server of this object in the backend.
	// +optional
	Server *Server `json:"server,omitempty"`

	// Time of the last update of this status.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// Number of restarts after the guest stopped by itself.
	// +optional
	Restarts int32 `json:"restarts"`

	// Consecutive failures; unset after a success.
	// +optional
	StartFailure *StartFailure `json:"startFailure,omitempty"`

	// Value of spec.restartRequestedAt at the last requested restart.
	// +optional
	LastRestartRequestedAt *metav1.Time `json:"lastRestartRequestedAt,omitempty"`

	// Next times of spec.powerSchedule.
	// +optional
	PowerSchedule *PowerScheduleStatus `json:"powerSchedule,omitempty"`

	// Progress of spec.snapshots.
	// +optional
	Snapshots *commonv1.SnapshotScheduleStatus `json:"snapshots,omitempty"`

	// Last restore that has ended.
	// +optional
	Restore *commonv1.RestoreStatus `json:"restore,omitempty"`

	// Requested restart that is in progress.
	// +optional
	PendingRestart *PendingRestart `json:"pendingRestart,omitempty"`

	// Last run of the server, see server.run, whose end was counted, so that each end is
	// counted once.
	// +optional
	LastEndedRun string `json:"lastEndedRun,omitempty"`

	// Generation of the VirtualMachine that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the machine. Ready is True if the machine is as requested.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// Host is the host of the server of a VirtualMachine.
type Host struct {
	// Backend of the server.
	Driver string `json:"driver"`

	// Identity of the backend's state on the host. It differs on another host, and on the
	// same host after that state was lost.
	ID string `json:"id"`

	// Name of the host, for display.
	// +optional
	Name string `json:"name,omitempty"`
}

// Server is the server of a VirtualMachine in its backend.
type Server struct {
	// Name of the server in the backend.
	// +optional
	ID string `json:"id,omitempty"`

	// Power state: Running, Paused, Asleep, Stopped, Starting, Stopping or Unknown.
	// +optional
	State ServerState `json:"state,omitempty"`

	// Resource usage of the machine over the last 15 s, updated after a change of 5
	// percentage points. The metrics are exact.
	// +optional
	Usage *Usage `json:"usage,omitempty"`

	// Addresses of the guest, 16 at most, without loopback, link-local and site-local
	// ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`

	// Addresses of the forwarded ports of the guest.
	// +optional
	// +listType=map
	// +listMapKey=name
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// Time at which the machine was powered on.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// Name of the current run, from power-on to power-off.
	// +optional
	Run string `json:"run,omitempty"`
}

// Usage is the resource usage of a machine.
type Usage struct {
	// Processor usage in percent of all processors of the machine.
	CPU int32 `json:"cpu"`

	// Memory usage in percent.
	Memory int32 `json:"memory"`
}

// Endpoint is the address of a forwarded port of the guest.
type Endpoint struct {
	// Name of the port in the spec.
	Name string `json:"name"`

	// Address and port, such as 127.0.0.1:40022.
	Address string `json:"address"`

	// Transport protocol of the port.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`
}

// StartFailure counts consecutive failures.
type StartFailure struct {
	// Number of consecutive failed attempts or runs.
	Count int32 `json:"count"`

	// Time of the next attempt.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`
}

// PendingRestart is a requested restart that is in progress.
type PendingRestart struct {
	// Value of spec.restartRequestedAt for this restart.
	RequestedAt metav1.Time `json:"requestedAt"`

	// Run of the server that ends with this restart; empty if the machine was not running.
	// +optional
	Run string `json:"run,omitempty"`
}
