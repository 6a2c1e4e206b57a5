package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase sums up how far a VirtualMachine is.
type Phase string

// The values of Phase. It is empty before the controller has seen the object.
const (
	// PhaseCreating: there is no confirmed server yet.
	PhaseCreating Phase = "Creating"
	// PhaseActive: the server exists and is ours, whatever its power.
	PhaseActive Phase = "Active"
	// PhaseFailed: the last attempt failed.
	PhaseFailed Phase = "Failed"
	// PhaseTerminating: deletion is under way.
	PhaseTerminating Phase = "Terminating"
	// PhaseUnknown: the backend or the monitor of the machine does not answer, the server is
	// on another host, or it is not certain which driver has it.
	PhaseUnknown Phase = "Unknown"
)

// ServerState is the power state of a server.
type ServerState string

// The values of ServerState.
const (
	// ServerRunning: the processors of the machine run.
	ServerRunning ServerState = "running"
	// ServerPaused: the machine is in memory, its processors are halted.
	ServerPaused ServerState = "paused"
	// ServerStopped: the machine is powered off.
	ServerStopped ServerState = "stopped"
	// ServerStarting: the machine is being started.
	ServerStarting ServerState = "starting"
	// ServerStopping: the machine is being stopped.
	ServerStopping ServerState = "stopping"
	// ServerUnknown: the backend does not tell.
	ServerUnknown ServerState = "unknown"
)

// VirtualMachineStatus is what the controller last saw of the machine.
type VirtualMachineStatus struct {
	// How far the machine is: Creating, Active, Failed, Terminating or Unknown.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// Why the machine is not ready, or what it waits for; empty when all is well.
	// +optional
	Reason string `json:"reason,omitempty"`

	// The host that has the server, or is to have it. It is written before the server is
	// created, and stays until the object is gone: no other host makes a second one.
	// +optional
	Host *Host `json:"host,omitempty"`

	// The server that the backend has for this object.
	// +optional
	Server *Server `json:"server,omitempty"`

	// When this status was last written.
	// +optional
	LastUpdateTime *metav1.Time `json:"lastUpdateTime,omitempty"`

	// How often the machine was started again after it had stopped by itself.
	// +optional
	Restarts int32 `json:"restarts"`

	// Failures in a row; absent when there was none lately.
	// +optional
	StartFailure *StartFailure `json:"startFailure,omitempty"`

	// Value of spec.restartedAt that was last obeyed.
	// +optional
	LastRestartTime *metav1.Time `json:"lastRestartTime,omitempty"`

	// A restart that was asked for and is under way.
	// +optional
	PendingRestart *PendingRestart `json:"pendingRestart,omitempty"`

	// Run of the server, see server.run, whose end was counted last, so that none
	// counts twice.
	// +optional
	LastEndedRun string `json:"lastEndedRun,omitempty"`

	// Generation of the VirtualMachine that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the machine. Ready sums it up: the guest has answered.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// Host is where a driver keeps the server of a VirtualMachine.
type Host struct {
	// Backend that keeps the server.
	Driver string `json:"driver"`

	// Identity of what the backend keeps on the host. Another host has another one, and
	// so has the same host if that was lost.
	ID string `json:"id"`

	// Name of the host, for people.
	// +optional
	Name string `json:"name,omitempty"`
}

// Server is the server that a backend has for a VirtualMachine.
type Server struct {
	// Name of the server in the backend.
	// +optional
	ID string `json:"id,omitempty"`

	// Backend that has the server.
	// +optional
	Driver string `json:"driver,omitempty"`

	// Power state: running, paused, stopped, starting, stopping or unknown.
	// +optional
	State ServerState `json:"state,omitempty"`

	// Use of the machine's resources, refreshed when it has moved by 5 points.
	// +optional
	Usage *Usage `json:"usage,omitempty"`

	// Addresses of the guest, 16 at most.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses,omitempty"`

	// Where the ports of the guest can be reached.
	// +optional
	// +listType=map
	// +listMapKey=name
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// When the machine was powered on.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// Name of this run, from power-on to power-off.
	// +optional
	Run string `json:"run,omitempty"`
}

// Usage is how much of its resources a machine uses.
type Usage struct {
	// Use of the processors in percent of all that the machine has.
	CPU int32 `json:"cpu"`

	// Use of the memory in percent.
	Memory int32 `json:"memory"`
}

// Endpoint is where a port of the guest can be reached.
type Endpoint struct {
	// Name of the port in the spec.
	Name string `json:"name"`

	// Address and port, such as 127.0.0.1:40022.
	Address string `json:"address"`

	// Transport protocol of the port.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`
}

// StartFailure counts failures in a row.
type StartFailure struct {
	// How many attempts or runs in a row failed.
	Count int32 `json:"count"`

	// When the next attempt is made.
	// +optional
	RetryAfter *metav1.Time `json:"retryAfter,omitempty"`
}

// PendingRestart is a restart that was asked for and is under way.
type PendingRestart struct {
	// Value of spec.restartedAt that is being obeyed.
	RequestedAt metav1.Time `json:"requestedAt"`

	// Run of the server that is to end; empty if it did not run.
	// +optional
	Run string `json:"run,omitempty"`
}
