package backend

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// Identity identifies a server. Only UID is significant; the other fields are for display,
// and to find the VirtualMachine of a server.
type Identity struct {
	// UID is the UID of the VirtualMachine.
	UID types.UID `json:"uid"`
	// Namespace and Name identify the VirtualMachine.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Cluster is the UID of the cluster that has the VirtualMachine: several clusters
	// may use one backend.
	Cluster types.UID `json:"cluster"`
}

// Machine is the desired state of a server.
type Machine struct {
	Identity `json:"identity"`
	// MilliCPU is the number of processors in thousandths.
	MilliCPU int64 `json:"milliCPU"`
	// MemoryBytes is the memory of the guest.
	MemoryBytes int64 `json:"memoryBytes"`
	// DiskBytes is the size of the root disk; 0 means the size of the image.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	// Image is the image to boot; nil means the default of the driver.
	Image *v1alpha1.Image `json:"image,omitempty"`
	// Snapshot is the UID of the VirtualMachineSnapshot that a new server is made of; empty means none. It boots what the
	// server of the snapshot booted, whatever Image is, and its disks begin with the content of those of the snapshot that
	// have the same names.
	Snapshot types.UID `json:"snapshot,omitempty"`
	// CDROM is the image in the CD-ROM drive; nil means that there is no drive.
	CDROM *v1alpha1.Image `json:"cdrom,omitempty"`
	// Firmware is the firmware; empty means BIOS.
	Firmware v1alpha1.Firmware `json:"firmware,omitempty"`
	// CPUModel is the model of the processors; empty means the default of the driver.
	CPUModel string `json:"cpuModel,omitempty"`
	// Display is the display; empty means none.
	Display v1alpha1.DisplayType `json:"display,omitempty"`
	// Disks are the disks besides the root disk.
	Disks []Disk `json:"disks,omitempty"`
	// Seed is the cloud-init data for the first boot; nil means none.
	Seed *Seed `json:"-"` // may be secret: never serialized with this type
	// KeepsSeed reports that the server keeps the cloud-init data that it has: Seed is not known. Only a start has it.
	KeepsSeed bool `json:"-"`
	// Ports of the guest to forward.
	Ports []v1alpha1.Port `json:"ports,omitempty"`
	// Network says who can reach the machine; nil means the machines of its namespace.
	Network *v1alpha1.Network `json:"network,omitempty"`
	// Service reports whether Pods of nodes reach the ports, too.
	Service bool `json:"service,omitempty"`
	// SleepsAtShutdown means that the server is put to sleep when its host is shut down, instead of being stopped.
	SleepsAtShutdown bool `json:"sleepsAtShutdown,omitempty"`
	// SleepsOnSchedule means that the server is put to sleep on a schedule, and SleepsWhenIdle when it is idle. Only the rule of a
	// driver needs that.
	SleepsOnSchedule bool `json:"-"`
	SleepsWhenIdle   bool `json:"-"`
	// TakesSnapshots means that snapshots of the server are wanted, and IsRestored that it is restored from one. Only the rule of a
	// driver needs that.
	TakesSnapshots bool `json:"-"`
	IsRestored     bool `json:"-"`
	// Pod is the Pod of the machine and its volumes, for drivers whose machines are Pods.
	Pod v1alpha1.VirtualMachinePod `json:"pod,omitzero"`
	// Set is the name of the VirtualMachineSet of the server; empty means none. A Pod has it as a label, for autoscalers.
	Set string `json:"-"`
	// Hash is a hash of all fields that can change.
	Hash string `json:"hash"`
}

// HasEphemeralDisks reports whether a machine in a Pod has new disks at each start.
func (m *Machine) HasEphemeralDisks() bool { return m.Pod.Storage == v1alpha1.StorageEphemeral }

// RejectPodFields rejects the fields for machines that are Pods, for all other drivers. The error is a *FieldError.
func (m *Machine) RejectPodFields() error {
	if m.Pod != (v1alpha1.VirtualMachinePod{}) {
		return &FieldError{Field: "spec.pod", Message: "only machines of the driver pod are Pods; remove the field"}
	}
	return nil
}

// RequireWholeCPUs rejects fractions of processors, for drivers that emulate a computer. The error is a *FieldError.
func (m *Machine) RequireWholeCPUs(driver string) error {
	if m.MilliCPU >= 1000 && m.MilliCPU%1000 == 0 {
		return nil
	}
	return &FieldError{Field: "spec.resource.cpu", Message: fmt.Sprintf("the driver %s requires a whole number of processors, at least 1", driver)}
}

// Seed is cloud-init data.
type Seed struct {
	// UserData and NetworkData are the files of these names, as they are; empty means
	// none.
	UserData    string
	NetworkData string
}

// State is the state of a server.
type State string

// The states of a server.
const (
	// StateAbsent: an attempt to create it is under way or has failed.
	StateAbsent State = "Absent"
	// StateStopped: the server is powered off.
	StateStopped State = "Stopped"
	// StateRunning: its processors run.
	StateRunning State = "Running"
	// StatePaused: it is in memory and its processors are halted.
	StatePaused State = "Paused"
	// StateAsleep: its memory is in a file, and it uses no memory and no processor.
	StateAsleep State = "Asleep"
	// StateUnknown: the server exists, but its monitor does not respond.
	StateUnknown State = "Unknown"
)

// Task is the background operation of a server.
type Task string

// The tasks.
const (
	// TaskNone: no operation is in progress.
	TaskNone Task = ""
	// TaskCreate: the server is being created.
	TaskCreate Task = "create"
	// TaskStart: the server is being started.
	TaskStart Task = "start"
	// TaskStop: the server is being stopped.
	TaskStop Task = "stop"
	// TaskSleep: the server is being put to sleep.
	TaskSleep Task = "sleep"
	// TaskRestore: the disks of the server are being replaced by those of a snapshot.
	TaskRestore Task = "restore"
	// TaskDelete: the server is being deleted.
	TaskDelete Task = "delete"
)

// Server is the observed state of a server.
type Server struct {
	Identity
	// ID is the backend's identifier of the server.
	ID string
	// State is the current state.
	State State
	// Task is the operation in progress, and Progress describes how far it is. It changes
	// in a few coarse steps, because each is written to the API. Progress without a Task is
	// that of a run whose guest does not boot yet: it can be stopped.
	Task     Task
	Progress string
	// Blocked is what a TaskStart or TaskCreate waits for that a user may have to provide; nil if it makes progress. The backend continues by
	// itself, and Stop ends a TaskStart.
	Blocked *Blocked
	// Message explains StateUnknown, or why the guest of a server in StateRunning does not run, and what to do: a full disk of its host, for
	// example. It is empty otherwise.
	Message string
	// Run identifies the current run, from power-on to power-off, or the last one; empty
	// if there was none.
	Run string
	// SavedBytes is the size of the saved memory of a server that is asleep, 0 otherwise.
	SavedBytes int64
	// Asleep describes how the server was put to sleep; nil unless it is asleep.
	Asleep *Asleep
	// LastActive is when the server was last in use, as far as this driver knows: not before the start of the run, and not
	// before the driver was opened. Zero if the server is off, or if the driver does not know.
	LastActive time.Time
	// StartedAt is the start of the current run; zero if the server is off.
	StartedAt time.Time
	// Ended is the end of the last run or of the last attempt to create the server; nil
	// while the server is on, or if there was none.
	Ended *Ended
	// Agent is the state of the guest agent.
	Agent Agent
	// Silence describes a guest that was reset because it had said nothing, and has said nothing since; nil if there is none.
	Silence *Silence
	// NetworkError is why the network of the machine does not work; empty if it does.
	NetworkError string
	// Addresses are the guest's addresses without loopback and link-local ones, at most 16. The
	// first one is that which the backend has given to it, if it does so.
	Addresses []string
	// Endpoints are the addresses at which ports of the guest can be reached.
	Endpoints []v1alpha1.Endpoint
	// Service is where nodes reach the ports of the guest; nil if the server is off or its
	// machine has no Service.
	Service *Service
	// Usage is the last measured usage; nil if there is none.
	Usage *Usage
	// Emulated reports whether the processors are emulated.
	Emulated bool
	// Hash is the Hash of the last Machine given to the driver.
	Hash string
	// Disks has the disks whose changes are not complete. The driver continues by itself and
	// calls the function given to Watch.
	Disks []PendingDisk
	// Restored is the token of the last restore that is done; empty if there was none. FailedRestore is the last attempt, if it has
	// failed and has changed nothing; nil if not.
	Restored      string
	FailedRestore *FailedRestore
	// Restoring is the token of a restore that was begun and has not ended, however long ago: the disks may be those before it or after it.
	// Empty if there is none.
	Restoring string
	// RestoreWaits means that a restore was requested and is not in progress, for example because the backend has no room for it. The next
	// call of SnapshotStore.RestoreServer continues it, or withdraws it.
	RestoreWaits bool
	// Pending lists the fields of the spec whose changes require a restart.
	Pending []string
	// PendingReason is why a change of one of them was not applied, at the last start or since; empty if none was attempted.
	PendingReason string
}

// Blocked describes an operation that waits for something.
type Blocked struct {
	// Unschedulable means that no node can take the server.
	Unschedulable bool
	// Message is what the backend says.
	Message string
	// Waking means that the server may be asleep, so that Stop discards its memory.
	Waking bool
}

// Silence describes a guest that was reset because it had said nothing since it was powered on, neither on its serial console nor through
// its agent.
type Silence struct {
	// Resets is how often it was reset, and After is how long it had run before the last time.
	Resets int           `json:"resets,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	// GaveUp means that it said nothing for After once more, and is not reset again.
	GaveUp bool `json:"gaveUp,omitempty"`
}

// Service is where nodes reach the ports of a guest.
type Service struct {
	// Address is an IPv4 address of the host that the nodes reach.
	Address string
	// Ports are the ports at that address, by the names of the ports of the guest.
	Ports map[string]int32
	// Error is why the nodes do not reach the guest, and what to do; empty if they do.
	Error string
}

// Asleep describes how a server was put to sleep.
type Asleep struct {
	SleepOptions
	// Since is when it fell asleep.
	Since time.Time
	// Wanted means that someone has connected to it since, with WakeOnConnection. A driver that is opened may not know that any
	// more, unless the connection still waits.
	Wanted bool
}

// IsOn reports whether the server is running or paused.
func (s *Server) IsOn() bool { return s.State == StateRunning || s.State == StatePaused }

// Cause is the cause of the end of a run or attempt.
type Cause string

// The causes.
const (
	// CauseRequested: Stop was called.
	CauseRequested Cause = "requested"
	// CauseGuestShutdown: the guest powered itself off.
	CauseGuestShutdown Cause = "guest-shutdown"
	// CauseGuestPanic: the kernel of the guest crashed.
	CauseGuestPanic Cause = "guest-panic"
	// CauseHost: the server was killed, or the host went down.
	CauseHost Cause = "host"
	// CauseError: the backend failed while the server ran.
	CauseError Cause = "error"
	// CauseCreateFailed: the server could not be created.
	CauseCreateFailed Cause = "create-failed"
	// CauseStartFailed: the server could not be started.
	CauseStartFailed Cause = "start-failed"
	// CauseMemoryLost: the saved memory of a server that was asleep cannot be used, or its memory could not be saved when
	// its host was shut down. The server is off.
	CauseMemoryLost Cause = "memory-lost"
)

// Ended describes the end of a run or attempt.
type Ended struct {
	// Run identifies the run or attempt; it is unique.
	Run string
	// Cause is the cause of the end, and Message describes it.
	Cause   Cause
	Message string
	// At is the time of the end, StartedAt that of the beginning.
	At        time.Time
	StartedAt time.Time
}

// Agent is the state of the guest agent.
type Agent string

// The states of a guest agent.
const (
	// AgentNone: the backend or the image has no guest agent.
	AgentNone Agent = ""
	// AgentWaiting: the agent has not responded in this run.
	AgentWaiting Agent = "waiting"
	// AgentConnected: the agent responds.
	AgentConnected Agent = "connected"
	// AgentLost: the agent has stopped responding.
	AgentLost Agent = "lost"
)
