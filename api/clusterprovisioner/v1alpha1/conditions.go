package v1alpha1

import "time"

// DefaultCredentialsOverlap is how long the credentials of before are good after AnnotationRotateCredentials has asked
// for others.
const DefaultCredentialsOverlap = 10 * time.Minute

// DefaultForceDeleteAfter is how long a Cluster with AnnotationForceDelete waits for
// what it is made of, if the annotation names no time.
const DefaultForceDeleteAfter = time.Minute

// The condition types of a Cluster. All of them are always there.
const (
	// ConditionProvisioned is True when the present spec is applied. It stays True
	// when the cluster is down, and across restarts of the manager.
	ConditionProvisioned = "Provisioned"
	// ConditionReady is True when the API of the cluster answers /readyz with ok;
	// Unknown as long as nobody has asked. A Kubeconfig has it, too: the kubeconfig is
	// there and has not expired.
	ConditionReady = "Ready"
	// ConditionControlPlaneAvailable is True when all components of the control plane
	// run, as far as that can be seen.
	ConditionControlPlaneAvailable = "ControlPlaneAvailable"
	// ConditionEtcdHealthy is True when the API of the cluster reaches its etcd.
	ConditionEtcdHealthy = "EtcdHealthy"
	// ConditionKubeconfigAvailable is True when the Secret and the Kubeconfig are what
	// they should be.
	ConditionKubeconfigAvailable = "KubeconfigAvailable"
	// ConditionDeleting is True while the Cluster is being deleted; the message says
	// what it waits for, and since when.
	ConditionDeleting = "Deleting"
	// ConditionPaused is True when spec.paused is.
	ConditionPaused = "Paused"
)

// The reasons of ConditionProvisioned.
const (
	// ReasonApplied: the present spec is applied.
	ReasonApplied = "Applied"
	// ReasonProvisioning: the cluster is being made.
	ReasonProvisioning = "Provisioning"
	// ReasonUpdating: a change is being applied.
	ReasonUpdating = "Updating"
	// ReasonWaiting: something else has to end first; the message says what.
	ReasonWaiting = "Waiting"
	// ReasonProvisioningFailed: the operation failed; it is tried again after a pause.
	ReasonProvisioningFailed = "ProvisioningFailed"
	// ReasonInvalidSpec: the spec asks for what the engine cannot do.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonVersionNotAvailable: the manager does not have that Kubernetes version.
	ReasonVersionNotAvailable = "VersionNotAvailable"
	// ReasonConfigNotFound: the file of spec.configPath cannot be read, or is none.
	ReasonConfigNotFound = "ConfigNotFound"
	// ReasonStateFileMissing: the cluster was made once, and what is needed to manage
	// it is gone. Restore it, or delete the Cluster.
	ReasonStateFileMissing = "StateFileMissing"
	// ReasonEngineNotAvailable: the engine, or a program that it needs, is not there.
	ReasonEngineNotAvailable = "EngineNotAvailable"
)

// The reasons of ConditionReady, ConditionControlPlaneAvailable and
// ConditionEtcdHealthy; ConditionReady has ReasonKubeconfigInvalid, too, and only
// ConditionEtcdHealthy has ReasonEtcdAlarm.
const (
	// ReasonAvailable: all is well.
	ReasonAvailable = "Available"
	// ReasonNotProbed: the API was not asked yet.
	ReasonNotProbed = "NotProbed"
	// ReasonProbeFailed: the API did not answer well several times in a row.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonComponentDown: a process of the control plane has ended.
	ReasonComponentDown = "ComponentDown"
	// ReasonEtcdAlarm: etcd runs and has raised an alarm; the message says what to do.
	ReasonEtcdAlarm = "EtcdAlarm"
	// ReasonNotObserved: the engine cannot see it.
	ReasonNotObserved = "NotObserved"
)

// The reasons of ConditionKubeconfigAvailable, and of ConditionReady of a Kubeconfig.
const (
	// ReasonKubeconfigWritten: the Secret and the Kubeconfig are what they should be.
	ReasonKubeconfigWritten = "KubeconfigWritten"
	// ReasonNoKubeconfig: the engine has no kubeconfig yet.
	ReasonNoKubeconfig = "NoKubeconfig"
	// ReasonKubeconfigInvalid: the kubeconfig cannot be used; the message says why.
	ReasonKubeconfigInvalid = "KubeconfigInvalid"
	// ReasonKubeconfigExpired: its client certificate has expired.
	ReasonKubeconfigExpired = "KubeconfigExpired"
	// ReasonErrResourceExists: the Secret or the Kubeconfig of that name belongs to
	// someone else and is left alone.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonWriteFailed: the Secret or the Kubeconfig could not be written.
	ReasonWriteFailed = "WriteFailed"
)

// The reasons of ConditionDeleting and ConditionPaused.
const (
	// ReasonNotDeleting: nobody has deleted the Cluster.
	ReasonNotDeleting = "NotDeleting"
	// ReasonRemoving: what the cluster is made of is being removed.
	ReasonRemoving = "Removing"
	// ReasonDeleteFailed: it could not be removed; it is tried again after a pause.
	ReasonDeleteFailed = "DeleteFailed"
	// ReasonDeletionProtected: spec.deletionProtection is true.
	ReasonDeletionProtected = "DeletionProtected"
	// ReasonPaused: spec.paused is true.
	ReasonPaused = "Paused"
	// ReasonNotPaused: spec.paused is false.
	ReasonNotPaused = "NotPaused"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonUpgraded: the Kubernetes version has changed.
	ReasonUpgraded = "Upgraded"
	// ReasonMigrated: fields of the original controller were moved to their place.
	ReasonMigrated = "Migrated"
	// ReasonKubeconfigRepaired: the Secret with the kubeconfig was missing or damaged.
	ReasonKubeconfigRepaired = "KubeconfigRepaired"
	// ReasonKubeconfigRotated: the kubeconfig has a new client certificate.
	ReasonKubeconfigRotated = "KubeconfigRotated"
	// ReasonDeleted: what the cluster was made of is gone.
	ReasonDeleted = "Deleted"
	// ReasonLeftBehind: the Cluster was let go although something of it is left.
	ReasonLeftBehind = "LeftBehind"
	// ReasonMayBeDirty: the removal ended well, but hosts could not be reached.
	ReasonMayBeDirty = "MayBeDirty"
	// ReasonOrphanStopped: a cluster was stopped whose Cluster is gone; its data is kept.
	ReasonOrphanStopped = "OrphanStopped"
)
