package v1alpha1

// The condition types of a Foo.
const (
	// ConditionReady is True if the Deployment exists, is up to date, and all its
	// replicas are available.
	ConditionReady = "Ready"
)

// The reasons of ConditionReady; events of a Foo have the same reasons.
const (
	// ReasonAvailable: all replicas of the Deployment are available.
	ReasonAvailable = "Available"
	// ReasonProgressing: the Deployment is up to date, but not all of its replicas
	// are available yet.
	ReasonProgressing = "Progressing"
	// ReasonRolloutStuck: the Deployment makes no progress, for example because a quota
	// refuses its Pods; the message has the cause that Kubernetes reports.
	ReasonRolloutStuck = "RolloutStuck"
	// ReasonErrResourceExists: the Deployment with that name has another owner.
	// Rename one of the two, or delete the Deployment.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonDeploymentRejected: the API rejected the Deployment; the message has the
	// cause. Change the Foo, or the policy or quota that rejected it.
	ReasonDeploymentRejected = "DeploymentRejected"
	// ReasonDeploymentWriteFailed: the Deployment could not be written; the controller
	// retries with backoff.
	ReasonDeploymentWriteFailed = "DeploymentWriteFailed"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonDeploymentCreated: the Deployment was created.
	ReasonDeploymentCreated = "DeploymentCreated"
	// ReasonDeploymentScaled: the Deployment was scaled to a new spec.replicas.
	ReasonDeploymentScaled = "DeploymentScaled"
	// ReasonDeploymentUpdated: the Deployment was updated to a new spec.
	ReasonDeploymentUpdated = "DeploymentUpdated"
	// ReasonDeploymentRepaired: the Deployment was modified and has been repaired.
	ReasonDeploymentRepaired = "DeploymentRepaired"
	// ReasonDeploymentDeleted: a Deployment with an earlier name was deleted.
	ReasonDeploymentDeleted = "DeploymentDeleted"
)
