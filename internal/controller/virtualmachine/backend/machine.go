package backend

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// Identity is whose server it is. Only UID tells servers apart; the rest is for people,
// and for finding the object of a server.
type Identity struct {
	// UID is that of the VirtualMachine.
	UID types.UID `json:"uid"`
	// Namespace and Name are those of the VirtualMachine.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Cluster is the UID of the cluster that has the VirtualMachine: several clusters
	// may use one backend.
	Cluster types.UID `json:"cluster"`
}

// Machine is a server as it is wanted.
type Machine struct {
	Identity `json:"identity"`
	// MilliCPU is the number of processors in thousandths.
	MilliCPU int64 `json:"milliCPU"`
	// MemoryBytes is the memory of the guest.
	MemoryBytes int64 `json:"memoryBytes"`
	// DiskBytes is the size of the root disk; 0 leaves it to the image.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	// Image is what it boots; nil is the default of the driver.
	Image *v1alpha1.Image `json:"image,omitempty"`
	// Seed is for the first boot; nil is none.
	Seed *Seed `json:"-"` // may be secret: never stored by way of this type
	// Ports of the guest to forward.
	Ports []v1alpha1.Port `json:"ports,omitempty"`
	// Hash stands for all of this that can change; it differs if anything of that
	// does.
	Hash string `json:"hash"`
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
	StateAbsent State = "absent"
	// StateStopped: it is powered off.
	StateStopped State = "stopped"
	// StateRunning: its processors run.
	StateRunning State = "running"
	// StatePaused: it is in memory and its processors are halted.
	StatePaused State = "paused"
	// StateUnknown: it exists, and its monitor does not answer.
	StateUnknown State = "unknown"
)

// Task is what is going on with a server in the background.
type Task string

// The tasks.
const (
	// TaskNone: nothing is going on.
	TaskNone Task = ""
	// TaskCreate: it is being made.
	TaskCreate Task = "create"
	// TaskStart: it is being started.
	TaskStart Task = "start"
	// TaskStop: it is being stopped.
	TaskStop Task = "stop"
	// TaskDelete: it is being deleted.
	TaskDelete Task = "delete"
)

// Server is a server as it is.
type Server struct {
	Identity
	// ID is how the backend calls the server.
	ID string
	// State is its state now.
	State State
	// Task is what is going on, and Progress how far that is: in few steps, because
	// each is written to the API.
	Task     Task
	Progress string
	// Message explains StateUnknown.
	Message string
	// Run names the present run, from power-on to power-off, or else the last one;
	// empty if there was none.
	Run string
	// StartedAt is when the present run began; zero if the server is off.
	StartedAt time.Time
	// Ended is how the last run, or the last attempt to create the server, ended; nil
	// while the server is on or if there was none.
	Ended *Ended
	// Agent is what the guest agent does.
	Agent Agent
	// Addresses are those of the guest, without loopback and link-local ones, sorted; 16 at most.
	Addresses []string
	// Endpoints are where the ports of the guest can be reached.
	Endpoints []v1alpha1.Endpoint
	// Usage is what was last measured; nil if nothing was.
	Usage *Usage
	// Emulated tells whether the processors are emulated.
	Emulated bool
	// Hash is that of the Machine that the server was last told.
	Hash string
	// Pending are the fields of the spec that wait for a restart.
	Pending []string
}

// IsOn reports whether the server has a run now.
func (s *Server) IsOn() bool { return s.State == StateRunning || s.State == StatePaused }

// Cause is why a run or an attempt ended.
type Cause string

// The causes.
const (
	// CauseRequested: Stop was called.
	CauseRequested Cause = "requested"
	// CauseGuestShutdown: the guest powered itself off.
	CauseGuestShutdown Cause = "guest-shutdown"
	// CauseGuestPanic: the kernel of the guest crashed.
	CauseGuestPanic Cause = "guest-panic"
	// CauseHost: the server was ended from outside: killed, or the host went down.
	CauseHost Cause = "host"
	// CauseError: the backend has failed the server while it ran.
	CauseError Cause = "error"
	// CauseCreateFailed: the server could not be made.
	CauseCreateFailed Cause = "create-failed"
	// CauseStartFailed: the server could not be started.
	CauseStartFailed Cause = "start-failed"
)

// Ended is how a run or an attempt ended.
type Ended struct {
	// Run names the run or the attempt; no two have the same name.
	Run string
	// Cause is why, and Message that in words.
	Cause   Cause
	Message string
	// At is when, StartedAt when it had begun.
	At        time.Time
	StartedAt time.Time
}

// Agent is what the guest agent does.
type Agent string

// The states of a guest agent.
const (
	// AgentNone: the backend or the image has none.
	AgentNone Agent = ""
	// AgentWaiting: it has not answered since the run began.
	AgentWaiting Agent = "waiting"
	// AgentConnected: it answers.
	AgentConnected Agent = "connected"
	// AgentLost: it has answered, and does not any more.
	AgentLost Agent = "lost"
)

// Usage is what a server uses of its resources.
type Usage struct {
	// CPU and Memory are in percent of what the server has. A negative CPU says that
	// neither is known yet, as after a restart of the manager.
	CPU, Memory float64
	// CPUSeconds is the processor time since the run began.
	CPUSeconds float64
	// ResidentBytes is what the server takes of the host's memory.
	ResidentBytes int64
	// GuestBytes is what the guest says that it uses; 0 if it does not say.
	GuestBytes int64
}
