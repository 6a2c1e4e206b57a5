package v1alpha1

// The condition types of a ClusterSnapshot are ConditionReady and ConditionStored.

// ConditionStored is True if the store of the manager has a copy of the snapshot. It exists only
// if the manager has a store, or the ClusterSnapshot needs one.
const ConditionStored = "Stored"

// The reasons of ConditionReady of a ClusterSnapshot.
const (
	// ReasonSnapshotTaken: the snapshot is taken.
	ReasonSnapshotTaken = "SnapshotTaken"
	// ReasonClusterMissing: there is no Cluster with the name in spec.clusterName.
	ReasonClusterMissing = "ClusterMissing"
	// ReasonClusterNotRunning: the cluster is stopped or not provisioned yet. The snapshot is taken
	// when it runs.
	ReasonClusterNotRunning = "ClusterNotRunning"
	// ReasonEngineNotSupported: the Cluster has an engine without snapshots.
	ReasonEngineNotSupported = "EngineNotSupported"
	// ReasonSnapshotFailed: the snapshot could not be taken. It is retried.
	ReasonSnapshotFailed = "SnapshotFailed"
	// ReasonSnapshotLost: the files of the snapshot no longer exist, and Keelson did not delete
	// them. It is not taken again.
	ReasonSnapshotLost = "SnapshotLost"
	// ReasonReading: this host has no files of the snapshot, and they are read from the store.
	ReasonReading = "Reading"
	// ReasonSnapshotDeleting: the snapshot is being deleted.
	ReasonSnapshotDeleting = "Terminating"
)

// The reasons of ConditionStored. ReasonWaiting means that the snapshot is not taken yet,
// ReasonSnapshotDeleting that the copy could not be deleted. Deletion is retried.
const (
	// ReasonStored: the store has a copy of the snapshot.
	ReasonStored = "Stored"
	// ReasonStoreFailed: the copy could not be written or read. It is retried.
	ReasonStoreFailed = "StoreFailed"
	// ReasonCopyMissing: the store does not have the copy.
	ReasonCopyMissing = "CopyMissing"
	// ReasonStoreMissing: the snapshot has to be read from a store, and the manager has none.
	ReasonStoreMissing = "StoreMissing"
	// ReasonCopyLeft: the ClusterSnapshot is deleted, and its copy is left. It is the reason of an
	// event.
	ReasonCopyLeft = "CopyLeft"
)
