package v1alpha1

import "time"

// DefaultCredentialsOverlap is the time for which the previous credentials stay valid after a rotation with
// spec.rotateRequestedAt.
const DefaultCredentialsOverlap = 10 * time.Minute

// DefaultForceDeleteAfter is the default time after which AnnotationForceDelete removes the
// finalizer.
const DefaultForceDeleteAfter = time.Minute

// ExpiryNotice is the time between the announcement of the deletion by spec.expiresAfter and the deletion.
const ExpiryNotice = 5 * time.Minute

// The condition types of a Cluster. All of them are always set, except ConditionNodesReady,
// ConditionUsersReady, ConditionSnapshotsUpToDate, ConditionRestored and ConditionExpiring.
const (
	// ConditionProvisioned is True if the spec is applied. It stays True if the
	// cluster is down, and across restarts of the manager.
	ConditionProvisioned = "Provisioned"
	// ConditionReady is True if /readyz of the cluster's API succeeds, or if the cluster is
	// stopped as requested. It is Unknown before the first probe. On a Kubeconfig it is True if the kubeconfig exists and has not
	// expired.
	ConditionReady = "Ready"
	// ConditionControlPlaneAvailable is True if all components of the control plane
	// are running, as far as the engine reports them.
	ConditionControlPlaneAvailable = "ControlPlaneAvailable"
	// ConditionEtcdHealthy is True if the API of the cluster can reach its etcd.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionKubeconfigAvailable is True if the Secret and the Kubeconfig are up
	// to date.
	ConditionKubeconfigAvailable = "KubeconfigAvailable"
	// ConditionDeleting is True while the Cluster is being deleted. The message says what
	// the deletion waits for, and since when.
	ConditionDeleting = "Deleting"
	// ConditionPaused is True if spec.paused is true.
	ConditionPaused = "Paused"
	// ConditionNodesReady is True if all nodes of the spec have become ready since the cluster was
	// started. It is set with the engine local only.
	ConditionNodesReady = "NodesReady"
	// ConditionUsersReady is True if the kubeconfigs of all users of spec.users are in their Secrets, and
	// those of removed users are deleted. It is set only with spec.users.
	ConditionUsersReady = "UsersReady"
	// ConditionSnapshotsUpToDate is True if the last snapshot that spec.snapshots has made is taken, or if
	// none was due yet. It is set only with spec.snapshots.
	ConditionSnapshotsUpToDate = "SnapshotsUpToDate"
	// ConditionRestored is True if the restore of spec.restore is done. It is set only with spec.restore.
	ConditionRestored = "Restored"
	// ConditionExpiring is True from five minutes before the deletion by spec.expiresAfter. It is
	// set only if that field is.
	ConditionExpiring = "Expiring"
)

// The reasons of ConditionProvisioned.
const (
	// ReasonApplied: the spec is applied.
	ReasonApplied = "Applied"
	// ReasonProvisioning: the cluster is being provisioned.
	ReasonProvisioning = "Provisioning"
	// ReasonUpdating: a change is being applied. On ConditionReady: the API is down meanwhile.
	ReasonUpdating = "Updating"
	// ReasonWaiting: another operation, named in the message, has to end first.
	ReasonWaiting = "Waiting"
	// ReasonProvisioningFailed: the operation failed and is retried with backoff.
	ReasonProvisioningFailed = "ProvisioningFailed"
	// ReasonInvalidSpec: the engine does not support the spec.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonVersionNotAvailable: the Kubernetes version is not installed with the manager.
	ReasonVersionNotAvailable = "VersionNotAvailable"
	// ReasonSnapshotNotAvailable: the ClusterSnapshot of spec.from does not exist or is not ready.
	ReasonSnapshotNotAvailable = "SnapshotNotAvailable"
	// ReasonConfigNotFound: the file of spec.configPath cannot be read or is invalid.
	ReasonConfigNotFound = "ConfigNotFound"
	// ReasonStateFileMissing: the management state of a provisioned cluster is missing.
	// Restore it, or delete the Cluster.
	ReasonStateFileMissing = "StateFileMissing"
	// ReasonEngineNotAvailable: the engine, or a program that it needs, is not available.
	ReasonEngineNotAvailable = "EngineNotAvailable"
)

// The reasons of ConditionReady, ConditionControlPlaneAvailable and
// ConditionEtcdHealthy. They may also have ReasonUpdating, ReasonRestoring and ReasonStarting;
// ConditionReady may have ReasonKubeconfigInvalid, and ConditionEtcdHealthy ReasonEtcdAlarm.
const (
	// ReasonAvailable: the component is healthy.
	ReasonAvailable = "Available"
	// ReasonNotProbed: the API was not probed yet.
	ReasonNotProbed = "NotProbed"
	// ReasonProbeFailed: several consecutive probes of the API failed.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonComponentDown: a process of the control plane is not running.
	ReasonComponentDown = "ComponentDown"
	// ReasonEtcdAlarm: etcd has an alarm; the message has the remedy.
	ReasonEtcdAlarm = "EtcdAlarm"
	// ReasonNotObserved: the engine does not report it.
	ReasonNotObserved = "NotObserved"
	// ReasonStopping: the cluster is being stopped because spec.running is false, or
	// because of spec.idle.
	ReasonStopping = "Stopping"
	// ReasonStopped: the cluster is stopped because spec.running is false, or because of
	// spec.idle. On ConditionProvisioned: a change is applied when the cluster starts.
	ReasonStopped = "Stopped"
	// ReasonClientConnected: a client has connected to a cluster that spec.idle has
	// stopped, which starts it. For events only.
	ReasonClientConnected = "ClientConnected"
)

// The reasons of ConditionKubeconfigAvailable and ConditionUsersReady, and of ConditionReady of a Kubeconfig.
const (
	// ReasonKubeconfigWritten: the Secret and the Kubeconfig are up to date.
	ReasonKubeconfigWritten = "KubeconfigWritten"
	// ReasonNoKubeconfig: the engine has no kubeconfig yet.
	ReasonNoKubeconfig = "NoKubeconfig"
	// ReasonKubeconfigInvalid: the kubeconfig is invalid; see the message.
	ReasonKubeconfigInvalid = "KubeconfigInvalid"
	// ReasonKubeconfigExpired: the client certificate has expired.
	ReasonKubeconfigExpired = "KubeconfigExpired"
	// ReasonErrResourceExists: the Secret or the Kubeconfig with the name has another
	// owner and is not changed.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonWriteFailed: the Secret or the Kubeconfig could not be written.
	ReasonWriteFailed = "WriteFailed"
)

// The reasons of ConditionDeleting and ConditionPaused.
const (
	// ReasonNotDeleting: the Cluster is not being deleted.
	ReasonNotDeleting = "NotDeleting"
	// ReasonRemoving: the cluster is being removed.
	ReasonRemoving = "Removing"
	// ReasonDeleteFailed: the cluster could not be removed; the removal is retried with backoff.
	ReasonDeleteFailed = "DeleteFailed"
	// ReasonDeletionProtected: spec.deletionProtection is true.
	ReasonDeletionProtected = "DeletionProtected"
	// ReasonPaused: spec.paused is true.
	ReasonPaused = "Paused"
	// ReasonNotPaused: spec.paused is false.
	ReasonNotPaused = "NotPaused"
)

// The reasons of ConditionNodesReady; it may also have ReasonAvailable, ReasonNotObserved, ReasonStopping and
// ReasonStopped.
const (
	// ReasonStarting: the nodes, or the control plane, are starting.
	ReasonStarting = "Starting"
	// ReasonNodesNotReady: the nodes did not become ready; the attempt is repeated.
	ReasonNodesNotReady = "NodesNotReady"
)

// The reasons of ConditionSnapshotsUpToDate; it may also have ReasonSnapshotTaken, ReasonSnapshotNotAvailable,
// ReasonClusterNotRunning and ReasonErrResourceExists.
const (
	// ReasonNotDue: no snapshot was due yet.
	ReasonNotDue = "NotDue"
	// ReasonSnapshotPending: the last snapshot is not taken yet; the message says why.
	ReasonSnapshotPending = "SnapshotPending"
	// ReasonSuspended: spec.snapshots.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonInvalidSchedule: the schedule or the time zone is invalid.
	ReasonInvalidSchedule = "InvalidSchedule"
)

// The reasons of ConditionRestored; it may also have ReasonSnapshotNotAvailable, ReasonSnapshotPending, ReasonErrResourceExists,
// ReasonStopped and ReasonWaiting. Conditions of a component that does not run during a restore have ReasonRestoring.
const (
	// ReasonRestored: the cluster has the objects of the snapshot.
	ReasonRestored = "Restored"
	// ReasonRestoring: the restore is in progress.
	ReasonRestoring = "Restoring"
	// ReasonRestoreFailed: the cluster was not restored and runs as before. Request it again.
	ReasonRestoreFailed = "RestoreFailed"
)

// The reasons of ConditionExpiring; it may also have ReasonPaused and ReasonDeletionProtected.
const (
	// ReasonNotExpiring: the Cluster is deleted later than in five minutes.
	ReasonNotExpiring = "NotExpiring"
	// ReasonExpiring: the Cluster is deleted within five minutes.
	ReasonExpiring = "Expiring"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonUpgraded: the Kubernetes version has changed.
	ReasonUpgraded = "Upgraded"
	// ReasonMigrated: fields of the original controller were migrated.
	ReasonMigrated = "Migrated"
	// ReasonKubeconfigRepaired: the Secret with the kubeconfig was missing or damaged.
	ReasonKubeconfigRepaired = "KubeconfigRepaired"
	// ReasonEndpointChanged: the API has another address, and so has the Secret with the kubeconfig.
	ReasonEndpointChanged = "EndpointChanged"
	// ReasonKubeconfigRotated: the kubeconfig has a new client certificate.
	ReasonKubeconfigRotated = "KubeconfigRotated"
	// ReasonExpired: the Cluster is deleted because of spec.expiresAfter.
	ReasonExpired = "Expired"
	// ReasonDeleted: the cluster was removed.
	ReasonDeleted = "Deleted"
	// ReasonLeftBehind: the finalizer was removed although something of the cluster is left.
	ReasonLeftBehind = "LeftBehind"
	// ReasonMayBeDirty: the operation succeeded, but some hosts could not be reached.
	ReasonMayBeDirty = "MayBeDirty"
	// ReasonOrphanStopped: a cluster without a Cluster was stopped; its data is kept.
	ReasonOrphanStopped = "OrphanStopped"
)
