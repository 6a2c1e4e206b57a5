package v1

// The condition types of a SampleResource.
const (
	// ConditionReady is True when the Pod runs the image that the spec names, and
	// is ready.
	ConditionReady = "Ready"
)

// The reasons of ConditionReady; events of a SampleResource carry the same words.
const (
	// ReasonPodReady: the Pod runs the image and is ready.
	ReasonPodReady = "PodReady"
	// ReasonPodStarting: the Pod exists but is not ready yet.
	ReasonPodStarting = "PodStarting"
	// ReasonPodTerminating: the Pod is being deleted; a new one follows when it
	// is gone.
	ReasonPodTerminating = "PodTerminating"
	// ReasonPodFailed: the Pod failed or was lost with its node; the message says
	// when it is replaced.
	ReasonPodFailed = "PodFailed"
	// ReasonErrResourceExists: a Pod of that name belongs to someone else. Rename
	// the SampleResource, or delete the Pod.
	ReasonErrResourceExists = "ErrResourceExists"
	// ReasonPodRejected: the API refused the Pod; the message has its words.
	// Change the SampleResource, or the policy or quota that refused it.
	ReasonPodRejected = "PodRejected"
	// ReasonPodWriteFailed: the Pod could not be written for now; the controller
	// tries again with backoff.
	ReasonPodWriteFailed = "PodWriteFailed"
)

// The reasons of events that have no condition of their own.
const (
	// ReasonPodCreated: the Pod was created.
	ReasonPodCreated = "PodCreated"
	// ReasonPodReplaced: a Pod that had failed or was lost with its node was
	// deleted, to be replaced.
	ReasonPodReplaced = "PodReplaced"
	// ReasonImageChanged: the image of the running Pod was changed.
	ReasonImageChanged = "ImageChanged"
)
