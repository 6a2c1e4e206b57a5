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
