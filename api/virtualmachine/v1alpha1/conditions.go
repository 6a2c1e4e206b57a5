package v1alpha1

// AnnotationForgetHost abandons the host whose status.host.id is its value: the server on that
// host is considered lost. Set it only if the host will never return.
const AnnotationForgetHost = "cloudnative.tw/forget-host"

// The condition types of a VirtualMachine.
const (
	// ConditionReady is True if the machine is as requested: its guest is ready, or it is
	// stopped, paused or asleep as the spec requests.
	ConditionReady = "Ready"
	// ConditionGuestReady is True if the machine is on and its guest agent has responded or, for
	// an image without a guest agent, if the machine is running, and if spec.readinessProbe has
	// succeeded. Its reasons are those of ConditionReady.
	ConditionGuestReady = "GuestReady"
	// ConditionSynchronized is True if the driver has the current spec, and False if it cannot
	// be applied. It is Unknown while there is no server, and while the spec waits to be applied.
	ConditionSynchronized = "Synchronized"
	// ConditionCreated is True if the backend has a server for this object: its disk
	// and its definition.
	ConditionCreated = "Created"
	// ConditionAgentConnected is True if the guest agent responds.
	ConditionAgentConnected = "AgentConnected"
	// ConditionDisksReady is True if the machine has exactly the disks of spec.disks. If a
	// change waits for the guest or has failed, the message names the disks.
	ConditionDisksReady = "DisksReady"
	// ConditionServiceReady is True if Pods reach the machine through its Service. Only
	// machines with spec.service have it.
	ConditionServiceReady = "ServiceReady"
	// ConditionSnapshotsUpToDate is True if the last snapshot that spec.snapshots has made is taken,
	// or if none was due yet. Only machines with spec.snapshots have it.
	ConditionSnapshotsUpToDate = "SnapshotsUpToDate"
	// ConditionRestored is True if the restore of spec.restore is done. Only machines with
	// spec.restore have it.
	ConditionRestored = "Restored"
	// ConditionRestartRequired is True if a change of the spec requires a restart; the
	// message names the fields.
	ConditionRestartRequired = "RestartRequired"
	// ConditionSoftwareEmulation is True if the processors are emulated: the host has no
	// hardware virtualization, or the driver does not use it.
	ConditionSoftwareEmulation = "SoftwareEmulation"
)

// The reasons of ConditionReady.
const (
	// ReasonGuestReady: the guest agent has responded, and spec.readinessProbe, if there is
	// one, has succeeded.
	ReasonGuestReady = "GuestReady"
	// ReasonRunning: the machine is running. Its image has no guest agent, so it is not
	// known whether the guest has booted.
	ReasonRunning = "Running"
	// ReasonGuestBooting: the machine is running, the guest agent has not responded yet.
	ReasonGuestBooting = "GuestBooting"
	// ReasonGuestReset: the guest had said nothing since it was powered on, and was reset.
	ReasonGuestReset = "GuestReset"
	// ReasonGuestSilent: the guest agent no longer responds, or the guest has said nothing although it was reset several times.
	ReasonGuestSilent = "GuestSilent"
	// ReasonGuestHalted: the host does not let the guest run, for example because the volume of a disk is full.
	ReasonGuestHalted = "GuestHalted"
	// ReasonProbing: spec.readinessProbe has not succeeded yet.
	ReasonProbing = "Probing"
	// ReasonProbeFailed: spec.readinessProbe has succeeded before, and fails now.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonNetworkFailed: the network of the machine does not work; it is retried.
	ReasonNetworkFailed = "NetworkFailed"
	// ReasonStarting: the machine is being started.
	ReasonStarting = "Starting"
	// ReasonUnschedulable: no node can take the machine, which starts when one can; the
	// message has what the scheduler says.
	ReasonUnschedulable = "Unschedulable"
	// ReasonStopping: the machine is being stopped.
	ReasonStopping = "Stopping"
	// ReasonStopped: the machine is stopped, as requested by spec.action.
	ReasonStopped = "Stopped"
	// ReasonPaused: the machine is paused, as requested by spec.action.
	ReasonPaused = "Paused"
	// ReasonFallingAsleep: the memory of the machine is being saved, as requested by spec.action,
	// or because of spec.powerSchedule or spec.idle.
	ReasonFallingAsleep = "FallingAsleep"
	// ReasonAsleep: the machine is asleep, as requested by spec.action, or because of
	// spec.powerSchedule or spec.idle.
	ReasonAsleep = "Asleep"
	// ReasonClientConnected: someone has connected to a machine that is asleep because of
	// spec.idle, which wakes it. For events only.
	ReasonClientConnected = "ClientConnected"
	// ReasonGuestStopped: the guest has powered off or crashed, and spec.restartPolicy
	// does not restart it. Ready is True if it has powered off.
	ReasonGuestStopped = "GuestStopped"
	// ReasonBackOff: the guest has stopped by itself; the message has the time of the
	// restart.
	ReasonBackOff = "BackOff"
	// ReasonTerminating: the object is being deleted; the message says what the
	// deletion waits for.
	ReasonTerminating = "Terminating"
	// ReasonDeleteFailed: the server could not be deleted; the deletion is retried.
	ReasonDeleteFailed = "DeleteFailed"
	// ReasonPowerFailed: the machine could not be started, stopped, paused, resumed or
	// put to sleep; the action is retried.
	ReasonPowerFailed = "PowerFailed"
)

// The reasons of ConditionCreated; ConditionReady has them too while there is no
// server.
const (
	// ReasonServerCreated: the server exists.
	ReasonServerCreated = "ServerCreated"
	// ReasonCreating: the server is being created; the message has the progress.
	ReasonCreating = "Creating"
	// ReasonCreateFailed: the server could not be created; the message has the cause and
	// the time of the next attempt.
	ReasonCreateFailed = "CreateFailed"
	// ReasonInvalidSpec: the backend does not support the spec.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonSecretMissing: a Secret of spec.cloudInit, or its key, does not exist.
	ReasonSecretMissing = "SecretMissing"
	// ReasonImageMissing: there is no VirtualMachineImage with the name in spec.image.
	ReasonImageMissing = "ImageMissing"
	// ReasonImageNotReady: the VirtualMachineImage is not ready; the message has its reason.
	ReasonImageNotReady = "ImageNotReady"
	// ReasonDriverMissing: this manager does not have the driver; the message has the
	// remedy.
	ReasonDriverMissing = "DriverMissing"
	// ReasonDriverConflict: the finalizers, the status and spec.driver name different
	// drivers. Nothing is done until that is resolved; the message has the remedy.
	ReasonDriverConflict = "DriverConflict"
	// ReasonOnAnotherHost: the server is on another host. Nothing is done here; the message
	// names the host and has the remedy.
	ReasonOnAnotherHost = "OnAnotherHost"
	// ReasonBackendUnavailable: the backend, or the monitor of the machine, does not
	// respond. It is retried; nothing is created or deleted until then.
	ReasonBackendUnavailable = "BackendUnavailable"
)

// The reasons of ConditionSynchronized. It can also have ReasonInvalidSpec, ReasonSecretMissing,
// ReasonImageMissing and ReasonImageNotReady.
const (
	// ReasonSpecApplied: the driver has the current spec.
	ReasonSpecApplied = "SpecApplied"
	// ReasonChangePending: the current spec is applied after the operation in progress, or when the machine is awake.
	ReasonChangePending = "ChangePending"
	// ReasonChangeFailed: the current spec could not be applied; it is retried.
	ReasonChangeFailed = "ChangeFailed"
)

// The reasons of ConditionDisksReady.
const (
	// ReasonDisksUpToDate: the machine has the disks of spec.disks.
	ReasonDisksUpToDate = "DisksUpToDate"
	// ReasonDisksPending: disks are being added or removed; a removal waits until the guest
	// releases the disk, and an addition until a VirtualDisk is ready.
	ReasonDisksPending = "DisksPending"
	// ReasonDiskInUse: another machine has a VirtualDisk of spec.disks; the message names it. The
	// machine gets the disk when the other one lets it go.
	ReasonDiskInUse = "DiskInUse"
	// ReasonDiskFailed: a disk could not be added, grown or removed. It is retried.
	ReasonDiskFailed = "DiskFailed"
)

// The reasons of ConditionServiceReady.
const (
	// ReasonServiceReady: the Service routes to the machine.
	ReasonServiceReady = "ServiceReady"
	// ReasonMachineNotReady: the machine is not ready, so the Service does not lead to it.
	ReasonMachineNotReady = "MachineNotReady"
	// ReasonServiceUnreachable: nodes cannot reach the machine; the message has the remedy.
	ReasonServiceUnreachable = "ServiceUnreachable"
	// ReasonErrResourceExists: an object with that name exists and has another owner.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonServiceWriteFailed: the Service could not be written; it is retried.
	ReasonServiceWriteFailed = "ServiceWriteFailed"
)

// The reasons of ConditionSnapshotsUpToDate. It may also have ReasonSnapshotTaken, ReasonSnapshotNotAvailable,
// ReasonMachineNotCreated and ReasonErrResourceExists.
const (
	// ReasonNotDue: no snapshot was due yet.
	ReasonNotDue = "NotDue"
	// ReasonSnapshotPending: the last snapshot is not taken yet; the message says why.
	ReasonSnapshotPending = "SnapshotPending"
	// ReasonSuspended: spec.snapshots.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule: the schedule or the time zone is invalid.
	ReasonInvalidSchedule = "InvalidSchedule"
	// ReasonNotObserved: the schedule was not looked at yet.
	ReasonNotObserved = "NotObserved"
)

// The reasons of ConditionRestored. It may also have ReasonSnapshotPending, ReasonMachineNotCreated, ReasonInvalidSpec,
// ReasonErrResourceExists and ReasonNotObserved. ConditionReady has ReasonRestoring while the disks are being replaced.
const (
	// ReasonRestored: the machine has the disks of the snapshot.
	ReasonRestored = "Restored"
	// ReasonRestoring: the restore is in progress.
	ReasonRestoring = "Restoring"
	// ReasonRestoreFailed: the machine was not restored and has the disks that it had before.
	// Request it again.
	ReasonRestoreFailed = "RestoreFailed"
	// ReasonSnapshotNotAvailable: the VirtualMachineSnapshot of spec.restore does not exist, is
	// not ready, or is of another machine.
	ReasonSnapshotNotAvailable = "SnapshotNotAvailable"
)

// The reasons of the other conditions.
const (
	// ReasonConnected: the guest agent responds.
	ReasonConnected = "Connected"
	// ReasonNotConnected: the guest agent does not respond.
	ReasonNotConnected = "NotConnected"
	// ReasonNoAgent: the image or the backend has no guest agent.
	ReasonNoAgent = "NoAgent"
	// ReasonNotRunning: the machine is not running.
	ReasonNotRunning = "NotRunning"
	// ReasonFieldsWait: changes of the spec require a restart.
	ReasonFieldsWait = "FieldsWait"
	// ReasonUpToDate: the machine is as specified.
	ReasonUpToDate = "UpToDate"
	// ReasonNoHardwareVirtualization: the machine does not use hardware virtualization.
	ReasonNoHardwareVirtualization = "NoHardwareVirtualization"
	// ReasonHardwareVirtualization: the machine uses hardware virtualization.
	ReasonHardwareVirtualization = "HardwareVirtualization"
	// ReasonUnknown: nothing is known yet.
	ReasonUnknown = "Unknown"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonServerRestarted: the machine was restarted after the guest stopped by
	// itself.
	ReasonServerRestarted = "ServerRestarted"
	// ReasonRestartRequested: the machine was stopped because spec.restartRequestedAt
	// requests a restart.
	ReasonRestartRequested = "RestartRequested"
	// ReasonServerLost: the server no longer exists in the backend, and Keelson did not
	// delete it. A new one is created.
	ReasonServerLost = "ServerLost"
	// ReasonMemoryLost: the saved memory of a machine that was asleep could not be used, so the
	// machine boots from its disk.
	ReasonMemoryLost = "MemoryLost"
	// ReasonOrphanDeleted: a server without an object was deleted.
	ReasonOrphanDeleted = "OrphanDeleted"
)
