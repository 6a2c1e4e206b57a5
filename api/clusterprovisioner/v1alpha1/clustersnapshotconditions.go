package v1alpha1

// The condition type of a ClusterSnapshot is ConditionReady.

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
	// ReasonSnapshotDeleting: the snapshot is being deleted.
	ReasonSnapshotDeleting = "Terminating"
)
