package v1

// PingEvent is an event of a run.
//
// +kubebuilder:validation:Enum=Start;Success;Failure
type PingEvent string

const (
	// PingStart is the creation of the Job.
	PingStart PingEvent = "Start"
	// PingSuccess is the completion of the Job.
	PingSuccess PingEvent = "Success"
	// PingFailure is the failure of the Job.
	PingFailure PingEvent = "Failure"
)

// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.secretRef)",message="set either url or secretRef"

// Ping is a URL that is requested when runs start and end, such as of a check of
// healthchecks.io.
type Ping struct {
	// The http or https URL of the check. Success requests it as it is, Start with /start
	// after its path, and Failure with the exit code of the container that failed, or
	// /fail. All add the query parameter rid, an ID of the run.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",message="must be an http or https URL, such as https://hc-ping.com/UUID"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*//[^/?#]*@')",message="must not have a user name or password"
	URL string `json:"url,omitempty"`

	// A Secret with the URL, in the namespace of the CronTab. It is read for each request.
	// +optional
	SecretRef *PingSecret `json:"secretRef,omitempty"`

	// The events that are sent.
	// +optional
	// +listType=set
	// +kubebuilder:default={Start,Success,Failure}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Events []PingEvent `json:"events,omitempty"`
}

// PingSecret is a key of a Secret.
type PingSecret struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the URL in the Secret.
	// +optional
	// +kubebuilder:default=url
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}
