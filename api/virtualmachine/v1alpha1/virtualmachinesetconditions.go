package v1alpha1

// The condition type of a VirtualMachineSet is ConditionReady.

// The reasons of ConditionReady of a VirtualMachineSet. It may also have ReasonErrResourceExists.
const (
	// ReasonMachinesReady: all machines have the current template and are ready.
	ReasonMachinesReady = "MachinesReady"
	// ReasonMachinesNotReady: a machine is missing or not ready; the message names it.
	ReasonMachinesNotReady = "MachinesNotReady"
	// ReasonRollingOut: a change of the template has not reached all machines yet; the message
	// names the machine that the roll-out waits for.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutStopped: a machine with the current template has failed. The roll-out continues
	// when it is ready, or when the template is fixed.
	ReasonRolloutStopped = "RolloutStopped"
	// ReasonTemplateRejected: the API rejected a machine or a disk of the template. It is retried.
	ReasonTemplateRejected = "TemplateRejected"
	// ReasonMachineWriteFailed: a machine or a disk could not be written; it is retried.
	ReasonMachineWriteFailed = "MachineWriteFailed"
)

// The reasons of events of a VirtualMachineSet that have no condition.
const (
	// ReasonMachineCreated: a machine was created.
	ReasonMachineCreated = "MachineCreated"
	// ReasonMachineUpdated: a machine got the current template in place.
	ReasonMachineUpdated = "MachineUpdated"
	// ReasonMachineRestarted: a machine was restarted, because a change of the template required it.
	ReasonMachineRestarted = "MachineRestarted"
	// ReasonMachineReplaced: a machine was deleted, because a field of the template changed that a
	// VirtualMachine cannot change. It is created again.
	ReasonMachineReplaced = "MachineReplaced"
	// ReasonMachineDeleted: a machine was deleted, because the set was scaled down.
	ReasonMachineDeleted = "MachineDeleted"
)
