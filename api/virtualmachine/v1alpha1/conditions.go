package v1alpha1

// AnnotationForgetHost gives up the host whose status.host.id is its value: what that host
// has of the VirtualMachine is taken for lost. Set it only when the host is gone for good.
const AnnotationForgetHost = "cloudnative.tw/forget-host"

// UnknownHost is the value of AnnotationForgetHost for a server of which no host is noted.
const UnknownHost = "unknown"

// The condition types of a VirtualMachine.
const (
	// ConditionReady is True when the guest has answered; for an image without guest
	// agent, when the machine runs.
	ConditionReady = "Ready"
	// ConditionCreated is True when the backend has a server for this object: its
	// disk and its definition.
	ConditionCreated = "Created"
	// ConditionAgentConnected is True when the guest agent answers.
	ConditionAgentConnected = "AgentConnected"
	// ConditionRestartRequired is True when a change of the spec waits for a
	// restart; the message names the fields.
	ConditionRestartRequired = "RestartRequired"
	// ConditionSoftwareEmulation is True when the processors are emulated, because
	// the host has no hardware virtualization to offer.
	ConditionSoftwareEmulation = "SoftwareEmulation"
)

// The reasons of ConditionReady.
const (
	// ReasonGuestReady: the guest agent has answered.
	ReasonGuestReady = "GuestReady"
	// ReasonRunning: the machine runs; its image has no guest agent, so whether the
	// guest has booted is not known.
	ReasonRunning = "Running"
	// ReasonGuestBooting: the machine runs, the guest agent has not answered yet.
	ReasonGuestBooting = "GuestBooting"
	// ReasonGuestSilent: the guest agent has answered before and does not any more.
	ReasonGuestSilent = "GuestSilent"
	// ReasonStarting: the machine is being started.
	ReasonStarting = "Starting"
	// ReasonStopping: the machine is being stopped.
	ReasonStopping = "Stopping"
	// ReasonStopped: the machine is stopped, as spec.action asks.
	ReasonStopped = "Stopped"
	// ReasonPaused: the machine is paused, as spec.action asks.
	ReasonPaused = "Paused"
	// ReasonGuestStopped: the guest has powered itself off or crashed, and
	// spec.restartPolicy says to leave it so.
	ReasonGuestStopped = "GuestStopped"
	// ReasonBackOff: the guest has stopped by itself; the message says when it is
	// started again.
	ReasonBackOff = "BackOff"
	// ReasonTerminating: the object is being deleted; the message says what it waits
	// for.
	ReasonTerminating = "Terminating"
	// ReasonDeleteFailed: the server could not be deleted; it is tried again.
	ReasonDeleteFailed = "DeleteFailed"
	// ReasonPowerFailed: the machine could not be started, stopped, paused, resumed
	// or changed; it is tried again.
	ReasonPowerFailed = "PowerFailed"
)

// The reasons of ConditionCreated; ConditionReady has them too while there is no
// server.
const (
	// ReasonServerCreated: the server exists.
	ReasonServerCreated = "ServerCreated"
	// ReasonCreating: the server is being made; the message says how far it is.
	ReasonCreating = "Creating"
	// ReasonCreateFailed: the server could not be made; the message says why, and
	// when the next attempt comes.
	ReasonCreateFailed = "CreateFailed"
	// ReasonInvalidSpec: the backend cannot do what the spec asks for. Change the
	// spec; nothing is tried before.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonSecretMissing: a Secret of spec.cloudInit, or its key, does not exist.
	ReasonSecretMissing = "SecretMissing"
	// ReasonDriverMissing: this manager does not have the driver; the message says
	// how to get it.
	ReasonDriverMissing = "DriverMissing"
	// ReasonDriverConflict: the finalizers, the status and spec.driver name different
	// drivers for the server. Nothing is done until that is settled; the message says how.
	ReasonDriverConflict = "DriverConflict"
	// ReasonOnAnotherHost: another host has the server. Nothing is done here; the message
	// names the host and says what to do.
	ReasonOnAnotherHost = "OnAnotherHost"
	// ReasonBackendUnavailable: the backend, or the monitor of the machine, does not
	// answer. It is asked again; nothing is created or deleted meanwhile.
	ReasonBackendUnavailable = "BackendUnavailable"
)

// The reasons of the other conditions.
const (
	// ReasonConnected: the guest agent answers.
	ReasonConnected = "Connected"
	// ReasonNotConnected: the guest agent does not answer.
	ReasonNotConnected = "NotConnected"
	// ReasonNoAgent: the image or the backend has no guest agent.
	ReasonNoAgent = "NoAgent"
	// ReasonNotRunning: the machine does not run.
	ReasonNotRunning = "NotRunning"
	// ReasonFieldsWait: fields of the spec wait for a restart.
	ReasonFieldsWait = "FieldsWait"
	// ReasonUpToDate: the machine is what the spec says.
	ReasonUpToDate = "UpToDate"
	// ReasonNoHardwareVirtualization: the host does not offer it.
	ReasonNoHardwareVirtualization = "NoHardwareVirtualization"
	// ReasonHardwareVirtualization: the processors are virtualized by the host's.
	ReasonHardwareVirtualization = "HardwareVirtualization"
	// ReasonUnknown: nothing is known yet.
	ReasonUnknown = "Unknown"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonServerRestarted: the machine was started again after it had stopped by
	// itself.
	ReasonServerRestarted = "ServerRestarted"
	// ReasonRestartRequested: the machine was stopped because spec.restartedAt asks
	// for a restart.
	ReasonRestartRequested = "RestartRequested"
	// ReasonServerLost: the backend does not have the server any more, which nobody
	// of us deleted. A new one is created.
	ReasonServerLost = "ServerLost"
	// ReasonOrphanDeleted: a server was deleted whose object is gone.
	ReasonOrphanDeleted = "OrphanDeleted"
)
