package v1alpha1

const (
	// LabelScheduledBy is the label of a ClusterSnapshot that spec.snapshots of a Cluster made: the UID of that Cluster.
	LabelScheduledBy = GroupName + "/scheduled-by"
	// AnnotationScheduledAt is an annotation of such a ClusterSnapshot: the scheduled time.
	AnnotationScheduledAt = GroupName + "/scheduled-at"

	// LabelRestoreOf is the label of a ClusterSnapshot that was made before a restore of a Cluster: the UID of that Cluster.
	LabelRestoreOf = GroupName + "/before-restore-of"

	// LabelRehearsalOf is the label of the Cluster and the ClusterSnapshot of `keelson cluster rehearse`: the UID of the Cluster whose
	// upgrade is rehearsed.
	LabelRehearsalOf = GroupName + "/rehearsal-of"
)
