package v1alpha1

// The condition types of a Foo.
const (
	// ConditionReady is True when the Deployment exists, is what the Foo asks
	// for, and all its replicas are available.
	ConditionReady = "Ready"
)

// The reasons of ConditionReady; events of a Foo carry the same words.
const (
	// ReasonAvailable: all replicas of the Deployment are available.
	ReasonAvailable = "Available"
	// ReasonProgressing: the Deployment is what the Foo asks for, but not all of
	// its replicas are available yet.
	ReasonProgressing = "Progressing"
	// ReasonErrResourceExists: the Deployment of that name belongs to someone
	// else. Rename one of the two, or delete the Deployment.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonDeploymentRejected: the API refused the Deployment; the message has
	// its words. Change the Foo, or the policy or quota that refused it.
	ReasonDeploymentRejected = "DeploymentRejected"
	// ReasonDeploymentWriteFailed: the Deployment could not be written for now; the
	// controller tries again with backoff.
	ReasonDeploymentWriteFailed = "DeploymentWriteFailed"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonDeploymentCreated: the Deployment was created.
	ReasonDeploymentCreated = "DeploymentCreated"
	// ReasonDeploymentRepaired: the Deployment differed from what the Foo asks
	// for and was put right.
	ReasonDeploymentRepaired = "DeploymentRepaired"
	// ReasonDeploymentDeleted: a Deployment of an earlier name was deleted.
	ReasonDeploymentDeleted = "DeploymentDeleted"
)
