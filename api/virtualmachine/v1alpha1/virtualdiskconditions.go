package v1alpha1

// The condition types of a VirtualDisk are ConditionReady and ConditionDeleting.

// The reasons of the conditions of a VirtualDisk. ConditionReady may also have ReasonCreating,
// ReasonCreateFailed, ReasonInvalidSpec, ReasonImageMissing, ReasonImageNotReady, ReasonDriverMissing,
// ReasonOnAnotherHost, ReasonBackendUnavailable and ReasonTerminating, and ConditionDeleting
// ReasonNotDeleting, ReasonRemoving and ReasonInUse.
const (
	// ReasonDiskAvailable: the disk is as specified. A machine can have it, or has it.
	ReasonDiskAvailable = "DiskAvailable"
	// ReasonSourceMissing: there is no VirtualDisk with the name in spec.from.
	ReasonSourceMissing = "SourceMissing"
	// ReasonSourceNotReady: the VirtualDisk of spec.from does not exist on the host yet.
	ReasonSourceNotReady = "SourceNotReady"
	// ReasonSourceInUse: a running machine has the VirtualDisk of spec.from.
	ReasonSourceInUse = "SourceInUse"
	// ReasonGrowing: the disk is being grown.
	ReasonGrowing = "Growing"
	// ReasonGrowFailed: the disk could not be grown. It is retried, and can be used meanwhile.
	ReasonGrowFailed = "GrowFailed"
	// ReasonDiskLost: the file of the disk no longer exists, and Keelson did not delete it. It is
	// not replaced by an empty one.
	ReasonDiskLost = "DiskLost"
)
