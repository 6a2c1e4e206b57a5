package v1

// The condition types of a SampleResource.
const (
	// ConditionReady is True if the Pod runs the image of the spec and is ready.
	ConditionReady = "Ready"
)

// The reasons of ConditionReady; events of a SampleResource have the same reasons.
const (
	// ReasonPodReady: the Pod runs the image and is ready.
	ReasonPodReady = "PodReady"
	// ReasonPodStarting: the Pod exists but is not ready yet.
	ReasonPodStarting = "PodStarting"
	// ReasonPodStuck: the Pod cannot start, for example because its image cannot be
	// pulled or no node has room; the message has the cause.
	ReasonPodStuck = "PodStuck"
	// ReasonPodTerminating: the Pod is being deleted; a new one is created
	// afterwards.
	ReasonPodTerminating = "PodTerminating"
	// ReasonPodFailed: the Pod failed or was lost with its node; the message has the
	// time of its replacement.
	ReasonPodFailed = "PodFailed"
	// ReasonErrResourceExists: a Pod with that name has another owner. Rename the
	// SampleResource, or delete the Pod.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonPodRejected: the API rejected the Pod; the message has the cause.
	// Change the SampleResource, or the policy or quota that rejected it.
	ReasonPodRejected = "PodRejected"
	// ReasonPodWriteFailed: the Pod could not be written; the controller
	// retries with backoff.
	ReasonPodWriteFailed = "PodWriteFailed"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonPodCreated: the Pod was created.
	ReasonPodCreated = "PodCreated"
	// ReasonPodReplaced: a Pod that failed or was lost with its node was deleted,
	// to be replaced.
	ReasonPodReplaced = "PodReplaced"
	// ReasonImageChanged: the image of the running Pod was changed.
	ReasonImageChanged = "ImageChanged"
)
