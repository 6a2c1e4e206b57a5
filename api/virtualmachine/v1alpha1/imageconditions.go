package v1alpha1

// The condition types of a VirtualMachineImage are ConditionReady and ConditionDeleting.
const (
	// ConditionDeleting is True while the image is being deleted, and False with ReasonInUse
	// while the deletion waits for machines.
	ConditionDeleting = "Deleting"
)

// The reasons of the conditions of a VirtualMachineImage. ConditionReady may also have
// ReasonInvalidSpec, ReasonDriverMissing, ReasonBackendUnavailable and ReasonTerminating.
const (
	// ReasonImported: machines can use the image.
	ReasonImported = "Imported"
	// ReasonImporting: the image is being downloaded or checked; the message has the progress.
	ReasonImporting = "Importing"
	// ReasonImportFailed: the image could not be imported; the message has the cause and the
	// time of the next attempt.
	ReasonImportFailed = "ImportFailed"
	// ReasonNotDeleting: the image is not being deleted.
	ReasonNotDeleting = "NotDeleting"
	// ReasonRemoving: the image is being removed.
	ReasonRemoving = "Removing"
	// ReasonInUse: the deletion waits until no VirtualMachine names the image.
	ReasonInUse = "InUse"
)
