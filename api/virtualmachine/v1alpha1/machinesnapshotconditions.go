package v1alpha1

// The condition type of a VirtualMachineSnapshot is ConditionReady.

// The reasons of ConditionReady of a VirtualMachineSnapshot. It may also have ReasonInvalidSpec, ReasonDriverMissing,
// ReasonOnAnotherHost, ReasonBackendUnavailable and ReasonTerminating.
const (
	// ReasonSnapshotTaken: the snapshot is taken.
	ReasonSnapshotTaken = "SnapshotTaken"
	// ReasonSnapshotInProgress: the disks are being copied.
	ReasonSnapshotInProgress = "SnapshotInProgress"
	// ReasonMachineMissing: there is no VirtualMachine with the name in spec.virtualMachineName.
	ReasonMachineMissing = "MachineMissing"
	// ReasonMachineNotCreated: the machine has no disks yet. The snapshot is taken when it has.
	ReasonMachineNotCreated = "MachineNotCreated"
	// ReasonMachineNotRunning: the machine is off, so that it has no memory. The snapshot is taken when it runs.
	ReasonMachineNotRunning = "MachineNotRunning"
	// ReasonSnapshotFailed: the snapshot could not be taken. It is retried.
	ReasonSnapshotFailed = "SnapshotFailed"
	// ReasonSnapshotLost: the files of the snapshot no longer exist, and Keelson did not delete
	// them. It is not taken again.
	ReasonSnapshotLost = "SnapshotLost"
)
