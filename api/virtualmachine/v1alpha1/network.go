package v1alpha1

// Network restricts or extends who can reach a machine. Its ports are forwarded in any case.
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Isolated' && has(self.allowFrom) && self.allowFrom.size() > 0)",message="an isolated machine is reached through its ports only: remove allowFrom or the mode",fieldPath=".allowFrom"
type Network struct {
	// Other namespaces whose machines can reach this machine, and that it can reach. Both
	// machines must allow the namespace of the other one.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +kubebuilder:validation:MaxItems=64
	AllowFrom []NetworkPeer `json:"allowFrom,omitempty"`

	// Determines what the machine reaches. With Namespace, the default, the machine and the
	// other machines of its namespace reach each other. With Isolated, it reaches neither other
	// machines nor other networks, and is reached through its ports only.
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`
}

// NetworkMode is what a machine can reach.
// +kubebuilder:validation:Enum=Namespace;Isolated
type NetworkMode string

// The values of NetworkMode.
const (
	// NetworkNamespace is the network of the namespace.
	NetworkNamespace NetworkMode = "Namespace"
	// NetworkIsolated is no network; the ports of the machine are forwarded.
	NetworkIsolated NetworkMode = "Isolated"
)

// NetworkPeer is a namespace with machines that may be reached.
type NetworkPeer struct {
	// Name of the namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
}

// Probe checks a guest over its network. It fails if the guest has not answered in time.
// +kubebuilder:validation:XValidation:rule="has(self.tcpSocket) != has(self.httpGet)",message="must have exactly one of tcpSocket and httpGet"
type Probe struct {
	// Succeeds if the guest accepts a connection at a TCP port.
	// +optional
	TCPSocket *TCPProbe `json:"tcpSocket,omitempty"`

	// Succeeds if the guest answers an HTTP request with a status from 200 to 399.
	// Redirects are not followed.
	// +optional
	HTTPGet *HTTPProbe `json:"httpGet,omitempty"`

	// Time in seconds between two checks.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`

	// Time in seconds after which a check fails.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// Number of consecutive failures after which a guest that was ready is not ready any
	// more.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// TCPProbe is a check of a TCP port.
type TCPProbe struct {
	// Number of the port in the guest.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// HTTPProbe is a check by an HTTP request.
type HTTPProbe struct {
	// Path of the request.
	// +optional
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[!-~]*$`
	Path string `json:"path,omitempty"`

	// Number of the port in the guest.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}
