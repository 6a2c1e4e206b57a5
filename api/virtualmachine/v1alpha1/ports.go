package v1alpha1

// Protocol is a transport protocol.
// +kubebuilder:validation:Enum=TCP;UDP
type Protocol string

// The values of Protocol.
const (
	// ProtocolTCP is TCP.
	ProtocolTCP Protocol = "TCP"
	// ProtocolUDP is UDP.
	ProtocolUDP Protocol = "UDP"
)

// ServiceType is the type of the Service of a machine.
// +kubebuilder:validation:Enum=ClusterIP
type ServiceType string

// ServiceClusterIP is a Service that Pods of the cluster reach.
const ServiceClusterIP ServiceType = "ClusterIP"

// Service is the Service of a machine.
type Service struct {
	// Type of the Service.
	// +optional
	// +kubebuilder:default=ClusterIP
	Type ServiceType `json:"type,omitempty"`
}

// Port is a port of the guest that is forwarded to the host.
type Port struct {
	// Name of the port, such as ssh.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Number of the port in the guest.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Transport protocol, TCP or UDP.
	// +optional
	// +kubebuilder:default=TCP
	Protocol Protocol `json:"protocol,omitempty"`
}
